"""Codes and numbers inside a kernel: bytes to fp16 and back, on any chip and in the interpreter.

Integers become floats by a trick of bits: 0x6400 | u is the fp16 number 1024 + u, exactly. 8-bit floats are moved
into fp16's fields by shifts, which works on chips that have never heard of them.
"""

import triton
import triton.language as tl

INT, E4M3, E5M2 = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def halves_of(u):
    """Whole numbers 0 .. 1023 (any integer type) as fp16."""
    return (u.to(tl.int16) | 0x6400).to(tl.float16, bitcast=True) - 1024.0


@triton.jit
def numbers_of(u, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr, NATIVE: tl.constexpr):
    """fp16 values of codes, one in each element of ``u`` (uint8, the code in the low BITS)."""
    if KIND == 0:
        if SIGNED:  # two's complement: flip the sign bit, and what was -m .. m - 1 is 0 .. 2m - 1
            return halves_of(u ^ (1 << (BITS - 1))) - (1 << (BITS - 1))
        else:
            return halves_of(u)
    elif KIND == 2:
        return (u.to(tl.int16) << 8).to(tl.float16, bitcast=True)
    elif NATIVE:
        return u.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:  # exponent 4 bits with bias 7 into 5 with bias 15: 2**8 too small, subnormals and all
        wide = u.to(tl.int16)
        bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
        value = bits.to(tl.float16, bitcast=True) * 256.0
        return tl.where((wide & 0x7F) == 0x7F, float("nan"), value)


@triton.jit
def unpacked(packed, i, BITS: tl.constexpr):
    """Code i of each byte."""
    if BITS == 8:
        return packed
    else:
        return (packed >> (i * BITS).to(tl.uint8)) & ((1 << BITS) - 1)


@triton.jit
def rounded(x):
    """To the nearest whole number, halves to even; for magnitudes below 2**22."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def float8_bits(x, KIND: tl.constexpr):
    """Bytes of fp32 numbers as e4m3 (KIND 1) or e5m2 (2): nearest, halves to even, saturated at the largest number.

    Normal numbers by adding half of what is cut off; subnormal ones by adding a power of two whose last bit is
    the smallest step.
    """
    MANTISSA: tl.constexpr = 3 if KIND == 1 else 2
    BIAS: tl.constexpr = 7 if KIND == 1 else 15
    MOST: tl.constexpr = 448.0 if KIND == 1 else 57344.0
    CUT: tl.constexpr = 23 - MANTISSA
    SMALLEST_NORMAL: tl.constexpr = 2.0 ** (1 - BIAS)
    STEP_AT_ONE: tl.constexpr = 2.0 ** (24 - BIAS - MANTISSA)  # its last bit is 2**(1 - BIAS - MANTISSA)
    size = tl.minimum(tl.abs(x), MOST)
    bits = size.to(tl.int32, bitcast=True)
    normal = ((bits + (1 << (CUT - 1)) - 1 + ((bits >> CUT) & 1)) >> CUT) - ((127 - BIAS) << MANTISSA)
    ends = (tl.zeros_like(size) + STEP_AT_ONE).to(tl.int32, bitcast=True)
    small = (size + STEP_AT_ONE).to(tl.int32, bitcast=True) - ends
    code = tl.where(size < SMALLEST_NORMAL, small, normal)
    code = tl.where(x != x, 0x7F, code)
    negative = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (code | negative).to(tl.uint8)


@triton.jit
def stored_scale(x, UP: tl.constexpr, HALF: tl.constexpr):
    """x in fp16 (HALF) rounded up or down and saturated, or as it is."""
    if not HALF:
        return x
    else:
        near = tl.minimum(tl.maximum(x, -65504.0), 65504.0).to(tl.float16)
        bits = near.to(tl.int16, bitcast=True)
        back = near.to(tl.float32)
        if UP:  # never negative
            return tl.where((back < x) & (back < 65504.0), bits + 1, bits).to(tl.float16, bitcast=True)
        else:
            lower = tl.where(back > 0, bits - 1, tl.where(back < 0, bits + 1, (bits * 0) - 32767))
            return tl.where((back > x) & (back > -65504.0), lower, bits).to(tl.float16, bitcast=True)
