"""A matrix product of one tile shape: every output is one chain of sums over the inputs, in order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.launch import KernelError, Launch


@triton.jit
def linear_tile(x, w, out, x_n, w_o, out_n, N, O, I, ROWS: tl.constexpr, OUTS: tl.constexpr, DEPTH: tl.constexpr,
                PRECISION: tl.constexpr):  # fmt: skip
    """Program (tile of outputs, tile of rows)."""
    n = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    o = tl.program_id(0) * OUTS + tl.arange(0, OUTS)
    i = tl.arange(0, DEPTH)
    x_at = x + n.to(tl.int64)[:, None] * x_n + i[None, :]
    w_at = w + o.to(tl.int64)[:, None] * w_o + i[None, :]
    acc = tl.zeros([ROWS, OUTS], tl.float32)
    for start in tl.range(0, I, DEPTH):
        deep = start + i < I
        x_tile = tl.load(x_at + start, mask=(n < N)[:, None] & deep[None, :], other=0.0)
        w_tile = tl.load(w_at + start, mask=(o < O)[:, None] & deep[None, :], other=0.0)
        acc = tl.dot(x_tile, tl.trans(w_tile), acc, input_precision=PRECISION)
    to = out + n.to(tl.int64)[:, None] * out_n + o[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=(n < N)[:, None] & (o < O)[None, :])


def plan_linear(x_NI: Tensor, weight_OI: Tensor, out_NO: Tensor, *, rows: int, outs: int, depth: int) -> Launch:
    """The one launch; nothing in it but the grid depends on N."""
    (N, I), O = x_NI.shape, len(weight_OI)
    if weight_OI.shape[1] != I or x_NI.dtype != weight_OI.dtype:
        raise KernelError(f"x {tuple(x_NI.shape)} {x_NI.dtype} and weight {tuple(weight_OI.shape)} {weight_OI.dtype} do not fit")
    args = dict(x=x_NI, w=weight_OI, out=out_NO, x_n=x_NI.stride(0), w_o=weight_OI.stride(0), out_n=out_NO.stride(0), N=N, O=O, I=I)
    exact = x_NI.dtype == torch.float32
    constants = dict(ROWS=rows, OUTS=outs, DEPTH=depth, PRECISION="ieee")  # of fp32; 16 bits know no other, and most of AMD's chips no tf32
    return Launch(linear_tile, (-(-O // outs), -(-N // rows)), args, constants, warps=4, stages=2 if exact else 4)
