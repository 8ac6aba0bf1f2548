"""Tiles of a quantized cache in Triton: codes taken out of their bytes, one by one, with their scales; and tokens as they came."""

from __future__ import annotations

import triton
import triton.language as tl

from kvedu.kernels.codes_triton import numbers_of, unpacked


@triton.jit
def code_tile(codes, at_S, keys, inside, UNIT: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr, STEP: tl.constexpr,
              D: tl.constexpr, DP: tl.constexpr, NATIVE: tl.constexpr):  # fmt: skip
    """Codes of some keys as fp16 numbers ``[BLOCK_S, DP]``, not scaled; each key's unit begins UNIT * ``at_S`` bytes after ``codes``.

    Along the head (STEP 1) a key's bytes lie side by side and are read once, then cut into codes. Along the
    tokens a byte holds neighbors in time.
    """
    PLANES: tl.constexpr = 8 // BITS
    at_S = at_S.to(tl.int64) * UNIT
    if STEP == 1:
        byte = tl.arange(0, DP // PLANES)
        mask = inside[:, None] & (byte < D // PLANES)[None, :]
        packed = tl.load(codes + at_S[:, None] + byte[None, :], mask=mask, other=0)
        if PLANES == 1:
            u = packed
        elif PLANES == 2:
            u = tl.interleave(packed & 15, packed >> 4)
        else:
            u = tl.interleave(tl.interleave(packed & 3, (packed >> 4) & 3), tl.interleave((packed >> 2) & 3, packed >> 6))
    else:
        d = tl.arange(0, DP)
        time = keys % STEP
        where = at_S[:, None] + d[None, :] * (STEP // PLANES) + (time // PLANES)[:, None]
        packed = tl.load(codes + where, mask=inside[:, None] & (d < D)[None, :], other=0)
        u = unpacked(packed, (time % PLANES)[:, None], BITS)
    return numbers_of(u, KIND, BITS, SIGNED, NATIVE)


@triton.jit
def scale_tile(scales, at_S, inside, GROUP: tl.constexpr, STEP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr):
    """The scale (or zero point) of every element ``[BLOCK_S, DP]`` in fp32."""
    d = tl.arange(0, DP)
    g = d if STEP > 1 else d // GROUP
    return tl.load(scales + at_S[:, None] + g[None, :], mask=inside[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)


@triton.jit
def token_scales(scales, zeros, at_S, inside, SCALE: tl.constexpr, ZERO: tl.constexpr):
    """Scale and zero point of each token, 1 and 0 where there is none."""
    scale_S = tl.where(inside, 1.0, 0.0)
    zero_S = scale_S * 0.0
    if SCALE:
        scale_S = tl.load(scales + at_S, mask=inside, other=0.0).to(tl.float32)
        if ZERO:
            zero_S = tl.load(zeros + at_S, mask=inside, other=0.0).to(tl.float32)
    return scale_S, zero_S


@triton.jit
def page_numbers(table, keys, hi, C: tl.constexpr, index: tl.constexpr):
    """The page of each key; 0 for those from ``hi`` on."""
    return tl.load(table + keys // C, mask=keys < hi, other=0).to(index)


@triton.jit
def scales_of(ks, kz, vs, vz, page_S, keys, hi, ks_u, vs_u, C: tl.constexpr, K_SCALE: tl.constexpr, K_ZERO: tl.constexpr,
              V_SCALE: tl.constexpr, V_ZERO: tl.constexpr):  # fmt: skip
    """Scales and zero points of some tokens' keys and values, where a token has one: a tile ahead, so that nobody waits for them.

    They are 2 bytes that lie apart; a copy to shared memory moves no less than 4, so the loop's own pipeline leaves them out.
    """
    at_S = page_S * C + keys % C
    k_scale, k_zero = token_scales(ks, kz, at_S * ks_u, keys < hi, K_SCALE, K_ZERO)
    v_scale, v_zero = token_scales(vs, vz, at_S * vs_u, keys < hi, V_SCALE, V_ZERO)
    return k_scale, k_zero, v_scale, v_zero


@triton.jit
def coded_tile(codes, scales, zeros, unit_S, keys, inside, code_u, scale_u,
               dtype: tl.constexpr, UNIT: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr,
               GROUP: tl.constexpr, STEP: tl.constexpr, ZERO: tl.constexpr, D: tl.constexpr,
               DP: tl.constexpr, NATIVE: tl.constexpr):  # fmt: skip
    """Keys or values of some tokens in ``dtype`` ``[BLOCK_S, DP]``: bare codes where a token has one scale, or none; else the numbers."""
    tile = code_tile(codes, unit_S * code_u, keys, inside, UNIT, KIND, BITS, SIGNED, STEP, D, DP, NATIVE)
    if GROUP > 0 and not (GROUP == D and STEP == 1):
        wide = tile.to(tl.float32) * scale_tile(scales, unit_S * scale_u, inside, GROUP, STEP, D, DP)
        if ZERO:
            wide += scale_tile(zeros, unit_S * scale_u, inside, GROUP, STEP, D, DP)
        return wide.to(dtype)
    else:
        return tile.to(dtype)


@triton.jit
def exact_tile(fresh, tails, keys, inside, old, first, slot, head, fresh_n, fresh_k, tail_s, tail_w, tail_k,
               W: tl.constexpr, D: tl.constexpr, DP: tl.constexpr):  # fmt: skip
    """Tokens as they came ``[BLOCK_S, DP]``: the step's own from ``fresh``, earlier ones from the tail's ring of W."""
    d = tl.arange(0, DP)
    new = inside & (keys >= old)
    at_S = (first + keys - old).to(tl.int64) * fresh_n + head * fresh_k
    tile = tl.load(fresh + at_S[:, None] + d[None, :], mask=new[:, None] & (d < D)[None, :], other=0.0)
    if W > 0:
        kept = inside & (keys < old)
        at_S = slot * tail_s + (keys % W).to(tl.int64) * tail_w + head * tail_k
        tile += tl.load(tails + at_S[:, None] + d[None, :], mask=kept[:, None] & (d < D)[None, :], other=0.0)
    return tile
