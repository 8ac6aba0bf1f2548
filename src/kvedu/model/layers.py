"""The layers a Llama block is made of besides attention: linear maps, RMSNorm and the SwiGLU MLP."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from kvedu.config import ModelConfig
from kvedu.kernels.arena import Arena
from kvedu.kernels.packed_linear import Packed, pack_gated, pack_linear
from kvedu.kernels.rmsnorm import rmsnorm


class Linear(nn.Module):
    """``x W^T + b``, optionally plus a residual; the weight is ``[out, in]``.

    ``pack()`` trades the weight for a copy laid out for the CPU where that is faster
    (see ``kernels/packed_linear``): the same map, no longer trainable.
    """

    def __init__(self, n_in: int, n_out: int, *, bias: bool = False) -> None:
        super().__init__()
        self.n_in, self.n_out = n_in, n_out
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.empty(n_out)) if bias else None
        self.packed: Packed | None = None

    def forward(self, x_NI: Tensor, residual_NO: Tensor | None = None) -> Tensor:
        if self.packed is not None:
            return self.packed(x_NI, residual_NO)
        y_NO = linear(x_NI, self.weight, self.bias)
        return y_NO if residual_NO is None else residual_NO + y_NO

    def pack(self, *, keep_weight: bool = False, arena: Arena | None = None) -> None:
        """Make the packed copy and, unless it is used elsewhere too, let the plain weight go."""
        self.packed = self._packed(self.weight.detach(), None if self.bias is None else self.bias.detach(), arena)
        if not keep_weight:
            self.weight = None

    _packed = staticmethod(pack_linear)

    def plain_weight(self) -> Tensor:
        """The weight ``[out, in]`` itself, or a plain copy of a packed one, bit for bit."""
        return self.packed.plain() if self.weight is None else self.weight

    def unpack(self) -> None:
        """Back to the plain, trainable weight."""
        if self.weight is None:
            self.weight = nn.Parameter(self.plain_weight())
        self.packed = None


class GateUp(Linear):
    """``silu(gate(x)) * up(x)``; gate rows and up rows are one matrix ``[2F, M]``, one product for both."""

    _packed = staticmethod(pack_gated)

    def __init__(self, width: int, mlp_width: int, *, bias: bool = False) -> None:
        super().__init__(width, 2 * mlp_width, bias=bias)

    def forward(self, x_NM: Tensor) -> Tensor:
        if self.packed is not None:
            return self.packed(x_NM)
        gate_NF, up_NF = super().forward(x_NM).chunk(2, dim=-1)
        return silu(gate_NF) * up_NF


class RMSNorm(nn.Module):
    """Scale the last axis to unit root mean square in fp32, then by a learned weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rmsnorm(x, self.weight, self.eps)


class Mlp(nn.Module):
    """SwiGLU: ``down(silu(gate(x)) * up(x))`` plus the residual (Shazeer 2020); as wide as ``config.F`` unless told."""

    def __init__(self, config: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        width = config.F if width is None else width
        self.gate_up = GateUp(config.M, width, bias=config.mlp_bias)
        self.down = Linear(width, config.M, bias=config.mlp_bias)

    def forward(self, x_NM: Tensor, residual_NM: Tensor) -> Tensor:
        return self.down(self.gate_up(x_NM), residual_NM)
