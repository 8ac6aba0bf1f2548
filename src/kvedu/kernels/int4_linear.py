"""A linear map whose weight is kept in 4 bits: a scale and a lowest value for each group of 32 inputs.

Weights only; the sums are those of the inputs' own precision. Rounding to 16 levels between a group's smallest and
largest weight is what GGUF's Q4_1 does too, so weights that came from such a file come back nearly as they were. PyTorch's
4-bit product (bf16, x86) reads the codes as they are, a quarter of the bytes; elsewhere the rounded weight is
kept in plain form: the same numbers, and nothing gained.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

GROUP = 32
"""Inputs that share a scale; fewer where 32 does not divide their number."""
TOP = 15


def int4_runs(dtype: torch.dtype, n_in: int, n_out: int, device: torch.device | str = "cpu") -> bool:
    """Whether PyTorch's 4-bit product takes a weight of this shape here: bf16 on a CPU that has it, whole groups and blocks of 16 outputs."""
    there = hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu") and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return there and dtype == torch.bfloat16 and torch.device(device).type == "cpu" and n_in % GROUP == 0 and n_out % 16 == 0


def round_to_int4(weight_OI: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes 0 … 15 ``[O, I]`` int32, and of each group its step and lowest value ``[O, I / group]``, in the weight's dtype.

    >>> codes, step, low = round_to_int4(torch.tensor([[0.0, 1.0, 7.4, 15.0]]))
    >>> codes.tolist(), step.tolist(), low.tolist()
    ([[0, 1, 7, 15]], [[1.0]], [[0.0]])
    """
    group = math.gcd(weight_OI.shape[1], GROUP)
    parts = weight_OI.float().unflatten(1, (-1, group))
    low, high = parts.amin(-1), parts.amax(-1)
    step = ((high - low) / TOP).to(weight_OI.dtype)
    low = low.to(weight_OI.dtype)
    divisor = step.float().masked_fill(step == 0, 1.0)
    codes = ((parts - low.float()[..., None]) / divisor[..., None]).round().clamp(0, TOP)
    return codes.flatten(1).to(torch.int32), step, low


class Int4Linear:
    """A weight ``[out, in]`` in 4 bits, as ``packed_linear.Packed`` wants it; ``gated``: gate and up of a SwiGLU, one after the other."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None, *, gated: bool = False) -> None:
        codes, step, low = round_to_int4(weight_OI)
        self.gated, self.bias, self.n_in = gated, bias_O, weight_OI.shape[1]
        self.codes, self.step, self.low = None, step, low
        if int4_runs(weight_OI.dtype, self.n_in, len(weight_OI), weight_OI.device):
            self.codes = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
            self.scales = torch.stack((step.T, (low.float() + 8 * step.float()).T.to(step.dtype)), dim=-1).contiguous()
            self.tensors: tuple[Tensor, ...] = (self.codes, self.scales)
        else:
            self.weight = self._rounded(codes)
            self.tensors = (self.weight,)

    def _rounded(self, codes: Tensor) -> Tensor:
        parts = codes.unflatten(1, (self.step.shape[1], -1))
        return (parts * self.step.float()[..., None] + self.low.float()[..., None]).flatten(1).to(self.step.dtype)

    def __call__(self, x_NI: Tensor, residual_NO: Tensor | None = None) -> Tensor:
        if self.codes is None:
            y_NO = linear(x_NI, self.weight)
        else:
            y_NO = torch.ops.aten._weight_int4pack_mm_for_cpu(x_NI.contiguous(), self.codes, GROUP, self.scales)
        if self.bias is not None:
            y_NO = y_NO + self.bias
        if self.gated:
            gate_NF, up_NF = y_NO.chunk(2, dim=-1)
            y_NO = silu(gate_NF) * up_NF
        return y_NO if residual_NO is None else residual_NO + y_NO

    def plain(self) -> Tensor:
        """The rounded weight: what the product computes with."""
        if self.codes is None:
            return self.weight
        one = torch.eye(self.n_in, dtype=self.step.dtype)
        return torch.ops.aten._weight_int4pack_mm_for_cpu(one, self.codes, GROUP, self.scales).T.contiguous()
