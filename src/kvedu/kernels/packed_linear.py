"""A linear map whose weight is kept in oneDNN's blocked layout: what makes a CPU's decode fast.

Given a plain ``[out, in]`` matrix, PyTorch's bf16 linear re-blocks the whole weight at every
call; for one token that costs more than the product itself. Blocking it once leaves
reading it once per call. The operators are the ones ``torch.compile`` uses when it freezes
a model's weights; a wheel without oneDNN (macOS on Arm) has none, and there nothing is packed.
"""

from __future__ import annotations

import torch
from torch import Tensor


def packing_pays(dtype: torch.dtype, device: torch.device | str = "cpu") -> bool:
    """Whether packed weights exist here for this dtype: on x86 CPUs, fp32 always, bf16 where oneDNN supports it."""
    if torch.device(device).type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight") or not torch.backends.mkldnn.enabled:
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32


class PackedWeight:
    """A weight ``[out, in]`` in oneDNN's layout; opaque but for ``plain()``."""

    def __init__(self, weight_OI: Tensor) -> None:
        self.shape = tuple(weight_OI.shape)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), 1)

    def plain(self) -> Tensor:
        """The weight as an ordinary tensor, bit for bit."""
        return self.weight.to_dense()


def packed_linear(x_NI: Tensor, packed: PackedWeight, bias_O: Tensor | None, residual_NO: Tensor | None) -> Tensor:
    """``x W^T + b`` (+ residual, added before the one rounding): ``[N, out]``. ``x_NI`` has two axes."""
    if residual_NO is not None:
        return torch.ops.mkldnn._linear_pointwise.binary(x_NI, residual_NO, packed.weight, bias_O, "add")
    return torch.ops.mkldnn._linear_pointwise(x_NI, packed.weight, bias_O, "none", [], "")


def packed_swiglu(x_NM: Tensor, gate: PackedWeight, up: PackedWeight, bias: Tensor | None) -> Tensor:
    """``silu(x G^T) * (x U^T)``: ``[N, F]``, each step done on a product while it is still in registers.

    ``bias`` is the gate's and the up's, one after the other.
    """
    b_gate, b_up = (None, None) if bias is None else bias.chunk(2)
    gate_NF = torch.ops.mkldnn._linear_pointwise(x_NM, gate.weight, b_gate, "swish", [], "")
    return torch.ops.mkldnn._linear_pointwise.binary(x_NM, gate_NF, up.weight, b_up, "mul")
