"""RMSNorm of a row, after adding a residual where one is given: one program, one row."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.launch import KernelError, Launch, check_rows, power_of_two


@triton.jit
def row_of(x, residual, i, M, ADDS: tl.constexpr):
    """Elements of the row in fp32: x, or x + residual rounded as it is stored."""
    values = tl.load(x + i, mask=i < M, other=0.0)
    if ADDS:
        both = values.to(tl.float32) + tl.load(residual + i, mask=i < M, other=0.0).to(tl.float32)
        values = both.to(x.dtype.element_ty)
    return values


@triton.jit
def norm_rows(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps,
              ADDS: tl.constexpr, ONE_TILE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """ONE_TILE keeps the row in registers; a longer row is read again, which the chip's cache mostly serves."""
    n = tl.program_id(0).to(tl.int64)
    x += n * x_n
    residual += n * residual_n
    out += n * out_n
    total += n * total_n
    lanes = tl.arange(0, BLOCK)
    if ONE_TILE:
        values = row_of(x, residual, lanes, M, ADDS)
        if ADDS:
            tl.store(total + lanes, values, mask=lanes < M)
        wide = values.to(tl.float32)
        scale = tl.math.rsqrt(tl.sum(wide * wide, 0) / M + eps)
        w = tl.load(weight + lanes, mask=lanes < M, other=0.0).to(tl.float32)
        tl.store(out + lanes, (wide * scale * w).to(out.dtype.element_ty), mask=lanes < M)
    else:
        squares = tl.zeros([BLOCK], tl.float32)
        for start in tl.range(0, M, BLOCK):
            wide = row_of(x, residual, start + lanes, M, ADDS).to(tl.float32)
            squares += wide * wide
        scale = tl.math.rsqrt(tl.sum(squares, 0) / M + eps)
        for start in tl.range(0, M, BLOCK):
            i = start + lanes
            values = row_of(x, residual, i, M, ADDS)
            if ADDS:
                tl.store(total + i, values, mask=i < M)
            w = tl.load(weight + i, mask=i < M, other=0.0).to(tl.float32)
            tl.store(out + i, (values.to(tl.float32) * scale * w).to(out.dtype.element_ty), mask=i < M)


def plan_rmsnorm(
    x_NM: Tensor, residual_NM: Tensor | None, weight_M: Tensor, eps: float, out_NM: Tensor, total_NM: Tensor | None,
    block: int | None = None,
) -> Launch:  # fmt: skip
    """The one launch. ``total_NM`` takes x + residual; it must not be x or the residual itself where a row has several tiles."""
    N, M = x_NM.shape
    adds = residual_NM is not None
    residual_NM, total_NM = (x_NM, out_NM) if residual_NM is None or total_NM is None else (residual_NM, total_NM)
    check_rows(x=x_NM, residual=residual_NM, weight=weight_M, out=out_NM, total=total_NM)
    if residual_NM.shape != (N, M) or weight_M.shape != (M,):
        raise KernelError(f"x {(N, M)}, residual {tuple(residual_NM.shape)} and weight {tuple(weight_M.shape)} do not fit")
    block = block or min(power_of_two(M), 8192)
    args = dict(
        x=x_NM, residual=residual_NM, weight=weight_M, out=out_NM, total=total_NM, x_n=x_NM.stride(0),
        residual_n=residual_NM.stride(0), out_n=out_NM.stride(0), total_n=total_NM.stride(0), M=M, eps=float(eps),
    )  # fmt: skip
    constants = {"ADDS": adds, "ONE_TILE": M <= block, "BLOCK": block}
    return Launch(norm_rows, (N,), args, constants, warps=max(1, min(8, block // 256)), stages=1)
