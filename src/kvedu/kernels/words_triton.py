"""Codes taken out of words of 16 bits, a whole plane of them at a time: code 0 of every word, code 1 of every word, …

A thread holds two words in a register. ``(word & mask) ^ pattern`` cuts an integer out of each of the two *and* makes it a number
in fp16, in one instruction: with 0x6400 in its upper bits the number is ``1024 + 2**at * code``, exactly. Nothing is
shifted, interleaved or converted. What is left over, 1024 and the power of two, is the same for a whole plane: the caller
takes it out of the product, or ``numbers`` does, in one multiply-add for two codes. Of 8-bit floats, e5m2 is the upper half of an
fp16 number already, and a chip that knows e4m3 turns two of them into fp16 in one instruction.
"""

import triton
import triton.language as tl

from kvedu.kernels.codes_triton import numbers_of


@triton.constexpr_function
def weight(j, KIND, BITS):
    """What the numbers of plane j are multiplied by to be codes."""
    return 1.0 if KIND else 1.0 / (1 << j * BITS % 8)


@triton.constexpr_function
def bias(j, KIND, BITS, SIGNED, HALF):
    """What is too much in them before that: a plane holds ``bias + code / weight``. Nothing, where it is not in fp16, or of floats."""
    return lift(j, BITS, SIGNED) if HALF and not KIND else 0.0


@triton.constexpr_function
def lift(j, BITS, SIGNED):
    """The same, as the pattern of bits has it."""
    return 1024.0 + (1 << (j * BITS % 8 + BITS - 1) if SIGNED else 0)


@triton.constexpr_function
def mask_of(j, BITS):
    """The bits of code j, in its byte."""
    return ((1 << BITS) - 1) << j * BITS % 8


@triton.constexpr_function
def pattern_of(j, BITS, SIGNED):
    """Exponent of 1024 in fp16; and the code's sign bit, which turns -m .. m - 1 into 0 .. 2m - 1 when it is flipped."""
    return 0x6400 | (1 << (j * BITS % 8 + BITS - 1) if SIGNED else 0)


@triton.constexpr_function
def two_at_once(j, KIND, BITS, SIGNED):
    """PTX for two words in one register. 8-bit integers: their bytes and 0x64 by turns; smaller ones: a shift where the code is in the
    upper byte, and one three-way logical instruction; e4m3: the two bytes side by side, and one conversion; e5m2: bytes and zeros by turns."""
    if KIND == 1:
        return "{ .reg .b32 x; .reg .b16 a, b; " + f"prmt.b32 x, $1, 0, {0x4431 if j else 0x4420:#x}; " + "mov.b32 {a, b}, x; cvt.rn.f16x2.e4m3x2 $0, a; }"
    if KIND == 2:
        return "and.b32 $0, $1, 0xff00ff00;" if j else "prmt.b32 $0, $1, 0, 0x2404;"
    if BITS == 8:
        flip = "xor.b32 x, $1, 0x80808080;" if SIGNED else "mov.b32 x, $1;"
        return "{ .reg .b32 x; " + flip + f" prmt.b32 $0, x, 0x64646464, {0x4341 if j else 0x4240:#x}; " + "}"
    mask, pattern = (x << 16 | x for x in (mask_of(j, BITS), pattern_of(j, BITS, SIGNED)))
    shift = "shr.b32 x, $1, 8;" if j * BITS >= 8 else "mov.b32 x, $1;"
    return "{ .reg .b32 x; " + shift + f" lop3.b32 $0, x, {mask:#x}, {pattern:#x}, 0x6a; " + "}"


@triton.jit
def lifted(words, j: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr, PTX: tl.constexpr):
    """Code j of each word as ``lift + code / weight`` in fp16, a float as it is. PTX: told to the assembler, as compilers do not find it."""
    if PTX:
        return tl.inline_asm_elementwise(two_at_once(j, KIND, BITS, SIGNED), "=r,r", [words], tl.float16, is_pure=True, pack=2)
    else:
        byte = words if j * BITS < 8 else words >> 8
        if KIND:
            return numbers_of((byte & 255).to(tl.uint8), KIND, BITS, SIGNED, False)
        else:
            return ((byte & mask_of(j, BITS)) ^ pattern_of(j, BITS, SIGNED)).to(tl.float16, bitcast=True)


@triton.jit
def plane(words, j: tl.constexpr, dtype: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr, PTX: tl.constexpr):
    """Code j of each word as ``bias + code / weight``, for a product in ``dtype``: fp32 would keep what fp16 rounds off anyway."""
    x = lifted(words, j, KIND, BITS, SIGNED, PTX)
    if dtype == tl.float16:
        return x
    elif KIND:
        return x.to(dtype)
    else:
        return x.to(dtype) - lift(j, BITS, SIGNED)


@triton.jit
def numbers(words, j: tl.constexpr, scale, zero, dtype: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr,
            PTX: tl.constexpr):  # fmt: skip
    """Code j of each word as the number it stands for, each word with its own scale and zero point."""
    code = lifted(words, j, KIND, BITS, SIGNED, PTX).to(dtype)
    if not KIND:
        code = code * weight(j, KIND, BITS) - lift(j, BITS, SIGNED) * weight(j, KIND, BITS)
    return code * scale + zero


@triton.jit
def in_turn(x, P: tl.constexpr):
    """P tiles, each with every P-th column, as one tile with all."""
    if P == 1:
        return x[0]
    elif P == 2:
        return tl.interleave(x[0], x[1])
    elif P == 4:
        return tl.interleave(tl.interleave(x[0], x[2]), tl.interleave(x[1], x[3]))
    else:
        even = tl.interleave(tl.interleave(x[0], x[4]), tl.interleave(x[2], x[6]))
        return tl.interleave(even, tl.interleave(tl.interleave(x[1], x[5]), tl.interleave(x[3], x[7])))


@triton.jit
def zeros_each(P: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """P tiles of zeros ``[M, N]``."""
    x = (tl.zeros([M, N], tl.float32),)
    for _ in tl.static_range(P - 1):
        x = x + (tl.zeros([M, N], tl.float32),)
    return x


@triton.jit
def word_tile(codes, at_S, inside, UNIT: tl.constexpr, WORDS: tl.constexpr, WP: tl.constexpr):
    """Codes of some keys as they lie, in 16-bit words ``[BLOCK_S, WP]``, each key's UNIT * ``at_S`` words after ``codes``."""
    n = tl.arange(0, WP)
    return tl.load(codes + (at_S.to(tl.int64) * UNIT)[:, None] + n[None, :], mask=inside[:, None] & (n < WORDS)[None, :], other=0)


@triton.jit
def word_scales(scales, zeros, at_S, inside, dtype: tl.constexpr, ZERO: tl.constexpr, EACH: tl.constexpr, WORDS: tl.constexpr, WP: tl.constexpr):
    """Scale and zero point of every word ``[BLOCK_S, WP]``: a group is EACH words."""
    n = tl.arange(0, WP)
    at, mask = at_S[:, None] + (n // EACH)[None, :], inside[:, None] & (n < WORDS)[None, :]
    scale = tl.load(scales + at, mask=mask, other=0.0).to(dtype)
    zero = scale * 0.0
    if ZERO:
        zero = tl.load(zeros + at, mask=mask, other=0.0).to(dtype)
    return scale, zero


@triton.jit
def query_planes(q, at_M, valid, dtype: tl.constexpr, P: tl.constexpr, WORDS: tl.constexpr, WP: tl.constexpr):
    """The queries' elements 0, P, 2P, …, then 1, P + 1, …: what plane 0, plane 1, … of a key's words is multiplied by."""
    n = tl.arange(0, WP)
    mask = valid[:, None] & (n < WORDS)[None, :]
    planes = (tl.load(q + at_M[:, None] + n[None, :] * P, mask=mask, other=0.0).to(dtype),)
    for j in tl.static_range(1, P):
        planes = planes + (tl.load(q + at_M[:, None] + n[None, :] * P + j, mask=mask, other=0.0).to(dtype),)
    return planes


@triton.jit
def weighed(q_planes, P: tl.constexpr, dtype: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr, HALF: tl.constexpr):
    """The queries' planes with the weights of the keys' taken in, and what the biases will add to every score."""
    too_much = tl.sum(q_planes[0].to(tl.float32), 1) * 0.0
    for j in tl.static_range(P):
        plane_j = (q_planes[0] * weight(j, KIND, BITS)).to(dtype)
        too_much += tl.sum(plane_j.to(tl.float32), 1) * bias(j, KIND, BITS, SIGNED, HALF)
        q_planes = q_planes[1:] + (plane_j,)
    return q_planes, too_much


@triton.jit
def folded_scores(q_planes, too_much, words, P: tl.constexpr, M: tl.constexpr, S: tl.constexpr, dtype: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr,
                  SIGNED: tl.constexpr, PRECISION: tl.constexpr, PTX: tl.constexpr):  # fmt: skip
    """Queries times bare codes ``[M, S]``; the biases are taken out before they come."""
    s = tl.zeros([M, S], tl.float32) - too_much[:, None]
    for j in tl.static_range(P):
        s = tl.dot(q_planes[j], tl.trans(plane(words, j, dtype, KIND, BITS, SIGNED, PTX)), s, input_precision=PRECISION)
    return s


@triton.jit
def scaled_scores(q_planes, words, scale, zero, P: tl.constexpr, M: tl.constexpr, S: tl.constexpr, dtype: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr,
                  SIGNED: tl.constexpr, PRECISION: tl.constexpr, PTX: tl.constexpr):  # fmt: skip
    """Queries times what codes stand for ``[M, S]``."""
    s = tl.zeros([M, S], tl.float32)
    for j in tl.static_range(P):
        k_tile = numbers(words, j, scale, zero, dtype, KIND, BITS, SIGNED, PTX)
        s = tl.dot(q_planes[j], tl.trans(k_tile), s, input_precision=PRECISION)
    return s


@triton.jit
def time_scores(q_code, kc, ks, kz, table, start, hi, kc_u, ks_u, dtype: tl.constexpr, C: tl.constexpr, index: tl.constexpr,
                UNIT: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr, STEP: tl.constexpr, ZERO: tl.constexpr, BLOCK_S: tl.constexpr,
                D: tl.constexpr, DP: tl.constexpr, PRECISION: tl.constexpr, PTX: tl.constexpr):  # fmt: skip
    """Scores ``[BLOCK_M, BLOCK_S]`` of keys in groups along the tokens: a word holds neighbors in time of one channel.

    Words lie as ``[channel, time]``, which is how the product wants its right side.
    """
    P: tl.constexpr = 16 // BITS
    d = tl.arange(0, DP)
    keys = start + tl.arange(0, BLOCK_S // P) * P
    inside = keys < hi
    mask = inside[None, :] & (d < D)[:, None]
    unit = tl.load(table + keys // C, mask=inside, other=0).to(index) * (C // STEP) + keys % C // STEP
    at = (unit * kc_u).to(tl.int64) * UNIT + keys % STEP // P
    words = tl.load(kc + at[None, :] + d[:, None] * (STEP // P), mask=mask, other=0)
    at = (unit * ks_u)[None, :] + d[:, None]
    scale = tl.load(ks + at, mask=mask, other=0.0).to(dtype)
    zero = scale * 0.0
    if ZERO:
        zero = tl.load(kz + at, mask=mask, other=0.0).to(dtype)
    s = (tl.dot(q_code, numbers(words, 0, scale, zero, dtype, KIND, BITS, SIGNED, PTX), input_precision=PRECISION),)
    for j in tl.static_range(1, P):
        s = s + (tl.dot(q_code, numbers(words, j, scale, zero, dtype, KIND, BITS, SIGNED, PTX), input_precision=PRECISION),)
    return in_turn(s, P)


@triton.jit
def folded_sums(accs, shrink, weights, words, P: tl.constexpr, dtype: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr,
                SIGNED: tl.constexpr, PRECISION: tl.constexpr, PTX: tl.constexpr):  # fmt: skip
    """Weights times bare codes, added to the sum of each plane; ``settled`` takes the biases out after the last tile."""
    for j in tl.static_range(P):
        acc = tl.dot(weights, plane(words, j, dtype, KIND, BITS, SIGNED, PTX), accs[0] * shrink[:, None], input_precision=PRECISION)
        accs = accs[1:] + (acc,)
    return accs


@triton.jit
def scaled_sums(accs, shrink, weights, words, scale, zero, P: tl.constexpr, dtype: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr,
                PRECISION: tl.constexpr, PTX: tl.constexpr):  # fmt: skip
    """Weights times what codes stand for, added to the sum of each plane."""
    for j in tl.static_range(P):
        v_tile = numbers(words, j, scale, zero, dtype, KIND, BITS, SIGNED, PTX)
        accs = accs[1:] + (tl.dot(weights, v_tile, accs[0] * shrink[:, None], input_precision=PRECISION),)
    return accs


@triton.jit
def settled(accs, taken, most, zeros, P: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr, HALF: tl.constexpr):
    """The sums of planes, which are in units of ``most``, without biases and weights, zero points added.

    ``taken``: each row's sum of weights times scales, in the same units.
    """
    for j in tl.static_range(P):
        acc = (accs[0] - taken[:, None] * bias(j, KIND, BITS, SIGNED, HALF)) * (weight(j, KIND, BITS) * most) + zeros[:, None]
        accs = accs[1:] + (acc,)
    return accs
