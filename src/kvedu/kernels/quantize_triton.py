"""Coding of new keys or values into pages: one program, one unit of one KV head; bit for bit what ``encode`` gives."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.coded_step import check_write
from kvedu.kernels.codes_triton import float8_bits, rounded, stored_scale
from kvedu.kernels.launch import Launch, power_of_two
from kvedu.kernels.quantized_pages import KINDS, CodedPages, Exact


@triton.jit
def code_units(
    codes, scales, zeros, fresh, tails, rows, units, code_u, code_k, scale_u, scale_k, fresh_n, fresh_k, tail_s, tail_w, tail_k,
    D: tl.constexpr, W: tl.constexpr, KIND: tl.constexpr, BITS: tl.constexpr, SYMMETRIC: tl.constexpr, SCALED: tl.constexpr,
    HALF: tl.constexpr, STEP: tl.constexpr, R: tl.constexpr, E: tl.constexpr, RP: tl.constexpr, EP: tl.constexpr,
):  # fmt: skip
    """A unit as R groups of E elements: a token's groups along its head, or (STEP > 1) a channel's STEP tokens."""
    PLANES: tl.constexpr = 8 // BITS
    unit = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    place = tl.load(units + 3 * unit)
    b = tl.load(units + 3 * unit + 1)
    token = tl.load(units + 3 * unit + 2)
    first = tl.load(rows + 4 * b)
    start = tl.load(rows + 4 * b + 2)
    slot = tl.load(rows + 4 * b + 3)
    r = tl.arange(0, RP)
    e = tl.arange(0, EP)
    mask = (r < R)[:, None] & (e < E)[None, :]
    if STEP == 1:
        d = r[:, None] * E + e[None, :]
        t_E = token + e * 0
    else:
        d = r[:, None] + e[None, :] * 0
        t_E = token + e
    new = t_E >= start
    at_E = (first + t_E - start) * fresh_n + head * fresh_k
    x = tl.load(fresh + at_E[None, :] + d, mask=mask & new[None, :], other=0.0).to(tl.float32)
    if W > 0:
        at_E = slot * tail_s + (t_E % W) * tail_w + head * tail_k
        x += tl.load(tails + at_E[None, :] + d, mask=mask & (t_E < start)[None, :], other=0.0).to(tl.float32)

    to_scale = scales + place * scale_u + head * scale_k + r
    if KIND == 0:
        if SYMMETRIC:
            MOST: tl.constexpr = (1 << (BITS - 1)) - 1
            LEAST: tl.constexpr = -MOST
            size = tl.max(tl.abs(x), 1)
        else:
            MOST: tl.constexpr = (1 << BITS) - 1
            LEAST: tl.constexpr = 0
            zero = stored_scale(tl.min(tl.where(mask, x, float("inf")), 1), False, HALF)
            tl.store(zeros + place * scale_u + head * scale_k + r, zero, mask=r < R)
            x = tl.where(mask, x - zero.to(tl.float32)[:, None], 0.0)
            size = tl.maximum(tl.max(x, 1), 0.0)
        scale = stored_scale(tl.math.div_rn(size, tl.full([RP], MOST, tl.float32)), True, HALF)
        tl.store(to_scale, scale, mask=r < R)
        by = tl.broadcast_to(scale.to(tl.float32)[:, None], [RP, EP])
        ratio = tl.where(by == 0.0, 0.0, tl.math.div_rn(x, tl.where(by == 0.0, 1.0, by)))
        whole = tl.minimum(tl.maximum(rounded(ratio), LEAST), MOST)
        u = (whole.to(tl.int32) & ((1 << BITS) - 1)).to(tl.uint8)
    else:
        if SCALED:
            LARGEST: tl.constexpr = 448.0 if KIND == 1 else 57344.0
            size = tl.max(tl.abs(x), 1)
            scale = stored_scale(tl.math.div_rn(size, tl.full([RP], LARGEST, tl.float32)), True, HALF)
            tl.store(to_scale, scale, mask=r < R)
            by = tl.broadcast_to(scale.to(tl.float32)[:, None], [RP, EP])
            x = tl.where(by == 0.0, 0.0, tl.math.div_rn(x, tl.where(by == 0.0, 1.0, by)))
        u = float8_bits(x, KIND)

    to = codes + place * code_u + head * code_k
    if PLANES == 1:
        tl.store(to + r[:, None] * E + e[None, :], u, mask=mask)
    else:
        i = tl.arange(0, PLANES)
        shifted = tl.reshape(u, [RP, EP // PLANES, PLANES]).to(tl.int32) << (i * BITS)[None, None, :]
        byte = tl.arange(0, EP // PLANES)
        keep = (r < R)[:, None] & (byte < E // PLANES)[None, :]
        tl.store(to + r[:, None] * (E // PLANES) + byte[None, :], tl.sum(shifted, 2).to(tl.uint8), mask=keep)


def plan_quantize(pages: CodedPages, exact: Exact, rows_B4: Tensor, units_M3: Tensor) -> Launch:
    """The one launch."""
    check_write(pages, exact, rows_B4, units_M3)
    format, coded, (N, K, D) = pages.format, pages.coded, exact.fresh.shape
    codes = coded.codes.flatten(0, 1)
    scale = codes if coded.scale is None else coded.scale.flatten(0, 1)
    zero = scale if coded.zero is None else coded.zero.flatten(0, 1)
    tails = exact.tails if exact.tails.numel() else exact.fresh.new_empty((1, 1, K, D))
    R, E = (D, format.step) if format.step > 1 else (D // (format.group or D), format.group or D)
    args = dict(
        codes=codes, scales=scale, zeros=zero, fresh=exact.fresh, tails=tails, rows=rows_B4, units=units_M3,
        code_u=codes.stride(0), code_k=codes.stride(1), scale_u=scale.stride(0), scale_k=scale.stride(1),
        fresh_n=exact.fresh.stride(0), fresh_k=exact.fresh.stride(1), tail_s=tails.stride(0), tail_w=tails.stride(1), tail_k=tails.stride(2),
    )  # fmt: skip
    constants = dict(
        D=D, W=exact.tails.shape[1], KIND=KINDS[format.kind], BITS=format.bits, SYMMETRIC=format.symmetric,
        SCALED=coded.scale is not None, HALF=format.scale_dtype == torch.float16, STEP=format.step, R=R, E=E,
        RP=power_of_two(R), EP=max(power_of_two(E), 8 // format.bits),
    )  # fmt: skip
    warps = 1 if power_of_two(R) * power_of_two(E) <= 512 else 4
    return Launch(code_units, (len(units_M3), K), args, constants, warps=warps, stages=1)
