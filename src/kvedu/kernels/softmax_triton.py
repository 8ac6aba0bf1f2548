"""Softmax in parts: a long row a tile at a time, and partial results put together by their log-sums."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.launch import KernelError, Launch, check_rows, check_whole, power_of_two


@triton.jit
def softmax_rows(x, out, x_n, out_n, width, BLOCK: tl.constexpr):
    """One program, one row, two passes: the running maximum and sum, then the weights."""
    n = tl.program_id(0).to(tl.int64)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    for start in tl.range(0, width, BLOCK):
        i = start + tl.arange(0, BLOCK)
        s = tl.load(x + n * x_n + i, mask=i < width, other=float("-inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(s, 0))
        safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.exp(m - safe) + tl.sum(tl.exp(s - safe), 0)
        m = m_new
    for start in tl.range(0, width, BLOCK):
        i = start + tl.arange(0, BLOCK)
        s = tl.load(x + n * x_n + i, mask=i < width, other=float("-inf")).to(tl.float32)
        tl.store(out + n * out_n + i, (tl.exp(s - m) / l).to(out.dtype.element_ty), mask=i < width)


@triton.jit(do_not_specialize=["splits"])
def merge(parts, lse, out, out_n, out_h, H, splits, DV: tl.constexpr, DVP: tl.constexpr, SP: tl.constexpr):
    """One program, one query head of one row: the splits' results weighted by 2 ** their log-sums, SP of them at a time.

    What an empty split left (log-sum -inf) is never read: its memory may hold anything. With one SP the order of the
    sums does not depend on how many splits there are, and empty ones at the end change no bit: ``splits`` is a number
    of the launch, never of the code.
    """
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, DVP)
    m = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([DVP], tl.float32)
    for start in tl.range(0, splits, SP):
        s = start + tl.arange(0, SP)
        logs = tl.load(lse + row * splits + s, mask=s < splits, other=float("-inf"))
        m_new = tl.maximum(m, tl.max(logs, 0))
        safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        weights = tl.math.exp2(logs - safe)
        used = weights > 0.0
        part = tl.load(parts + row * splits * DV + s[:, None] * DV + d[None, :], mask=used[:, None] & (d < DV)[None, :], other=0.0)
        shrink = tl.math.exp2(m - safe)
        total = total * shrink + tl.sum(weights, 0)
        acc = acc * shrink + tl.sum(part * weights[:, None], 0)
        m = m_new
    result = acc / tl.where(total == 0.0, 1.0, total)
    to = out + (row // H) * out_n + (row % H) * out_h
    tl.store(to + d, result.to(out.dtype.element_ty), mask=d < DV)


def plan_softmax(x_NV: Tensor, out_NV: Tensor, block: int | None = None) -> Launch:
    """Softmax of each row; ``block`` elements at a time."""
    N, width = x_NV.shape
    block = block or min(power_of_two(width), 4096)
    args = dict(x=x_NV, out=out_NV, x_n=x_NV.stride(0), out_n=out_NV.stride(0), width=width)
    return Launch(softmax_rows, (N,), args, {"BLOCK": block}, warps=4 if block <= 2048 else 8)


FIXED = 32
"""Parts that a merge takes at once where its bits must not depend on how many there are."""


def plan_merge(parts_NHSD: Tensor, lse_NHS: Tensor, out_NHD: Tensor, *, fixed: bool = False) -> Launch:
    """Put S partial results of each row and head together. ``fixed``: sums in one order whatever S is, else all parts at once."""
    N, H, S, DV = parts_NHSD.shape
    if tuple(lse_NHS.shape) != (N, H, S) or tuple(out_NHD.shape) != (N, H, DV):
        raise KernelError(f"parts {tuple(parts_NHSD.shape)}, log-sums {tuple(lse_NHS.shape)} and out {tuple(out_NHD.shape)} do not fit: "
                          "want [N, H, S, D], [N, H, S], [N, H, D]")  # fmt: skip
    check_whole(parts=parts_NHSD, log_sums=lse_NHS)
    check_rows(parts=parts_NHSD, log_sums=lse_NHS, out=out_NHD)
    args = dict(parts=parts_NHSD, lse=lse_NHS, out=out_NHD, out_n=out_NHD.stride(0), out_h=out_NHD.stride(1), H=H, splits=S)
    return Launch(merge, (N * H,), args, {"DV": DV, "DVP": power_of_two(DV), "SP": FIXED if fixed else min(power_of_two(S), 128)}, warps=4)
