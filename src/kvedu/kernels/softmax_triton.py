"""Softmax in parts: a long row a tile at a time, and partial results put together by their log-sums."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.launch import Launch, power_of_two


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


@triton.jit
def merge(parts, lse, out, parts_n, parts_h, lse_n, lse_h, out_n, out_h, H, splits,
          DV: tl.constexpr, DVP: tl.constexpr, SP: tl.constexpr):  # fmt: skip
    """One program, one query head of one row: the splits' results weighted by 2 ** their log-sums.

    What an empty split left (log-sum -inf) is never read: its memory may hold anything.
    """
    n = (tl.program_id(0) // H).to(tl.int64)
    h = tl.program_id(0) % H
    s = tl.arange(0, SP)
    d = tl.arange(0, DVP)
    logs = tl.load(lse + n * lse_n + h * lse_h + s, mask=s < splits, other=float("-inf"))
    top = tl.max(logs, 0)
    weights = tl.math.exp2(logs - tl.where(top == float("-inf"), 0.0, top))
    used = weights > 0.0
    part = tl.load(parts + n * parts_n + h * parts_h + s[:, None] * DV + d[None, :], mask=used[:, None] & (d < DV)[None, :], other=0.0)
    total = tl.sum(weights, 0)
    result = tl.sum(part * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + n * out_n + h * out_h + d, result.to(out.dtype.element_ty), mask=d < DV)


def plan_softmax(x_NV: Tensor, out_NV: Tensor, block: int | None = None) -> Launch:
    """Softmax of each row; ``block`` elements at a time."""
    N, width = x_NV.shape
    block = block or min(power_of_two(width), 4096)
    args = dict(x=x_NV, out=out_NV, x_n=x_NV.stride(0), out_n=out_NV.stride(0), width=width)
    return Launch(softmax_rows, (N,), args, {"BLOCK": block}, warps=4 if block <= 2048 else 8)


def plan_merge(parts_NHSD: Tensor, lse_NHS: Tensor, out_NHD: Tensor) -> Launch:
    """Put S partial results of each row and head together. The last two axes of ``parts`` lie side by side."""
    N, H, S, DV = parts_NHSD.shape
    assert parts_NHSD.stride()[2:] == (DV, 1) and lse_NHS.stride(2) == 1 and out_NHD.stride(2) == 1
    args = dict(
        parts=parts_NHSD, lse=lse_NHS, out=out_NHD, parts_n=parts_NHSD.stride(0), parts_h=parts_NHSD.stride(1),
        lse_n=lse_NHS.stride(0), lse_h=lse_NHS.stride(1), out_n=out_NHD.stride(0), out_h=out_NHD.stride(1), H=H, splits=S,
    )  # fmt: skip
    return Launch(merge, (N * H,), args, {"DV": DV, "DVP": power_of_two(DV), "SP": power_of_two(S)}, warps=4)
