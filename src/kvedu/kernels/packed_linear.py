"""Linear maps whose weight is laid out once for the CPU: what makes a CPU's decode fast.

Given a plain ``[out, in]`` matrix, PyTorch's bf16 linear re-blocks the whole weight at every
call; for one token that costs more than the product itself. Two layouts do the blocking once:
this project's panels (``panel_linear``) where their kernel runs, else oneDNN's, by the operators
that ``torch.compile`` uses when it freezes a model's weights. A wheel without oneDNN (macOS
on Arm) has neither, and there nothing is packed.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from kvedu.kernels.arena import Arena
from kvedu.kernels.panel_linear import PanelWeight, panel_linear, panels_pay, step


class Packed(Protocol):
    """A weight in a layout of its own, with the product that reads it."""

    tensors: tuple[Tensor, ...]
    """What it holds."""

    def __call__(self, x_NI: Tensor, residual_NO: Tensor | None = None) -> Tensor:
        """The product of ``x_NI``, two axes, plus a residual where one is given: ``[N, out]``."""

    def plain(self) -> Tensor:
        """The weight as an ordinary tensor, bit for bit."""


def packing_pays(dtype: torch.dtype, device: torch.device | str = "cpu") -> bool:
    """Whether packed weights exist here for this dtype: on x86 CPUs, fp32 always, bf16 where panels or oneDNN take it."""
    if torch.device(device).type != "cpu":
        return False
    return panels_pay(dtype) or onednn_packs(dtype)


def onednn_packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN's operators are in this wheel and take the dtype on this CPU."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32


def pack_linear(weight_OI: Tensor, bias_O: Tensor | None = None, arena: Arena | None = None) -> Packed:
    """The best layout here for ``x W^T + b``. Ask ``packing_pays`` first. ``arena``: where panels may lie."""
    fits = panels_pay(weight_OI.dtype) and weight_OI.shape[1] % step(weight_OI.dtype) == 0
    return PanelLinear(weight_OI, bias_O, arena=arena) if fits else OneDnnLinear(weight_OI, bias_O)


def pack_gated(weight_FM: Tensor, bias_F: Tensor | None = None, arena: Arena | None = None) -> Packed:
    """The best layout here for ``silu(x G^T + b) * (x U^T + c)``; gate and up one after the other, ``[2F, M]``."""
    fits = panels_pay(weight_FM.dtype) and weight_FM.shape[1] % step(weight_FM.dtype) == 0
    return PanelLinear(weight_FM, bias_F, gated=True, arena=arena) if fits else OneDnnGated(weight_FM, bias_F)


class PanelLinear:
    """A weight in panels (``panel_linear``), gated or not."""

    def __init__(
        self, weight_OI: Tensor, bias_O: Tensor | None, *, gated: bool = False, arena: Arena | None = None
    ) -> None:
        self.weight = PanelWeight(weight_OI, gated=gated, arena=arena)
        self.bias = None if bias_O is None else self.weight.bias(bias_O)
        self.tensors = (self.weight.panels,)

    def __call__(self, x_NI: Tensor, residual_NO: Tensor | None = None) -> Tensor:
        return panel_linear(x_NI, self.weight, self.bias, residual_NO)

    def plain(self) -> Tensor:
        return self.weight.plain()


class OneDnnLinear:
    """A weight in oneDNN's blocked layout; the residual is added before the one rounding."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self.weight, self.bias = _blocked(weight_OI), bias_O
        self.tensors = (self.weight,)

    def __call__(self, x_NI: Tensor, residual_NO: Tensor | None = None) -> Tensor:
        if residual_NO is not None:
            return torch.ops.mkldnn._linear_pointwise.binary(x_NI, residual_NO, self.weight, self.bias, "add")
        return torch.ops.mkldnn._linear_pointwise(x_NI, self.weight, self.bias, "none", [], "")

    def plain(self) -> Tensor:
        return self.weight.to_dense()


class OneDnnGated:
    """Gate and up of a SwiGLU in oneDNN's layout, each step done on a product while it is still in registers."""

    def __init__(self, weight_FM: Tensor, bias_F: Tensor | None) -> None:
        self.gate, self.up = (_blocked(part) for part in weight_FM.chunk(2))
        self.biases = (None, None) if bias_F is None else tuple(bias_F.chunk(2))
        self.tensors = (self.gate, self.up)

    def __call__(self, x_NM: Tensor, residual_NF: Tensor | None = None) -> Tensor:
        assert residual_NF is None, "a gated product has no residual"
        gate_NF = torch.ops.mkldnn._linear_pointwise(x_NM, self.gate, self.biases[0], "swish", [], "")
        return torch.ops.mkldnn._linear_pointwise.binary(x_NM, gate_NF, self.up, self.biases[1], "mul")

    def plain(self) -> Tensor:
        return torch.cat([self.gate.to_dense(), self.up.to_dense()])


def _blocked(weight_OI: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), 1)
