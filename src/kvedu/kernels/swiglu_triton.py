"""``silu(gate) * up`` as one kernel: a program owns a stretch of one row."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.launch import Launch, power_of_two


@triton.jit
def gate(x, out, x_n, out_n, F, BLOCK: tl.constexpr):
    """Gate at x, up F elements on."""
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(x + n * x_n + i, mask=i < F, other=0.0).to(tl.float32)
    up = tl.load(x + n * x_n + F + i, mask=i < F, other=0.0).to(tl.float32)
    tl.store(out + n * out_n + i, (g / (1.0 + tl.exp(-g)) * up).to(out.dtype.element_ty), mask=i < F)


def plan_swiglu(gate_up_NF: Tensor, out_NF: Tensor, block: int | None = None) -> Launch:
    """The one launch."""
    N, F = out_NF.shape
    block = block or min(power_of_two(F), 1024)
    args = dict(x=gate_up_NF, out=out_NF, x_n=gate_up_NF.stride(0), out_n=out_NF.stride(0), F=F)
    return Launch(gate, (N, -(-F // block)), args, {"BLOCK": block}, warps=4, stages=1)
