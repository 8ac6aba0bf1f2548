"""SwiGLU's elementwise part: ``silu(gate) * up``, of gate and up as one product gives them, side by side.

The MLP of a Llama is ``down(silu(gate(x)) * up(x))``; gate and up are one matrix product with outputs
``[N, 2F]``. Done apart, silu and the product read 3F and write 2F numbers a row; together 2F and F. (Shazeer 2020.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels.launch import KernelError, check_rows, graded, triton_wanted
from kvedu.units import Cost


def swiglu_reference(gate_up_NF: Tensor) -> Tensor:
    """The definition in fp32: the first half is the gate. ``[N, 2F]`` -> ``[N, F]`` in the same dtype."""
    gate_NF, up_NF = gate_up_NF.to(torch.float32).chunk(2, dim=-1)
    return (gate_NF / (1 + torch.exp(-gate_NF)) * up_NF).to(gate_up_NF.dtype)


def swiglu(gate_up_NF: Tensor, *, triton: bool | None = None, block: int | None = None) -> Tensor:
    """``[N, 2F]`` -> ``[N, F]``, or more leading axes; the last axis dense. ``block``: elements of a program, a power of two.

    The kernel gives no gradient: where one is wanted PyTorch answers.

    >>> swiglu(torch.tensor([[0.0, 2.0, 5.0, 3.0]])).tolist()
    [[0.0, 5.284782409667969]]
    """
    twice = gate_up_NF.shape[-1]
    if twice % 2:
        raise KernelError(f"gate and up lie side by side, so rows have an even width; got {tuple(gate_up_NF.shape)}")
    if graded(gate_up_NF) or not triton_wanted(triton, gate_up_NF):
        gate_NF, up_NF = gate_up_NF.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate_NF) * up_NF
    from kvedu.kernels.swiglu_triton import plan_swiglu

    check_rows(gate_up=gate_up_NF)
    rows_NF = gate_up_NF if gate_up_NF.dim() == 2 else gate_up_NF.reshape(-1, twice)
    out_NF = rows_NF.new_empty((len(rows_NF), twice // 2))
    plan_swiglu(rows_NF, out_NF, block).run()
    return out_NF.view(*gate_up_NF.shape[:-1], twice // 2)


def cost(tokens: int, width: int, bytes_per_element: int = 2) -> Cost:
    """For F = ``width``: 2F elements read and F written a token; 5 FLOPs each."""
    elements = tokens * width
    return Cost(5 * elements, 2 * elements * bytes_per_element, elements * bytes_per_element)
