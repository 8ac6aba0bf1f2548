"""The three layers a Llama block is made of: linear maps, RMSNorm and the SwiGLU MLP."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from kvedu.config import ModelConfig
from kvedu.kernels.packed_linear import PackedWeight, packed_linear
from kvedu.kernels.rmsnorm import rmsnorm


class Linear(nn.Module):
    """``x W^T + b``, optionally plus a residual; the weight is ``[out, in]``.

    ``pack()`` trades the weight for oneDNN's blocked copy of it where that is faster
    (see ``kernels/packed_linear``): the same map, no longer trainable.
    """

    def __init__(self, n_in: int, n_out: int, *, bias: bool = False) -> None:
        super().__init__()
        self.n_in, self.n_out = n_in, n_out
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.empty(n_out)) if bias else None
        self.packed: PackedWeight | None = None

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self.packed is not None:
            return packed_linear(x, self.packed, self.bias, residual)
        y = linear(x, self.weight, self.bias)
        return y if residual is None else residual + y

    def pack(self, *, keep_weight: bool = False) -> None:
        """Make the packed copy and, unless it is used elsewhere too, let the plain weight go."""
        self.packed = PackedWeight(self.weight.detach())
        if not keep_weight:
            self.weight = None

    def unpack(self) -> None:
        """Back to the plain, trainable weight."""
        if self.packed is not None:
            if self.weight is None:
                self.weight = nn.Parameter(self.packed.plain())
            self.packed = None


class RMSNorm(nn.Module):
    """Scale the last axis to unit root mean square in fp32, then by a learned weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rmsnorm(x, self.weight, self.eps)


class Mlp(nn.Module):
    """SwiGLU: ``down(silu(gate(x)) * up(x))``, gate and up as one matrix (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = Linear(config.M, 2 * config.F, bias=config.mlp_bias)
        self.down = Linear(config.F, config.M, bias=config.mlp_bias)

    def forward(self, x_NM: Tensor, residual_NM: Tensor) -> Tensor:
        gate_NF, up_NF = self.gate_up(x_NM).chunk(2, dim=-1)
        return self.down(silu(gate_NF) * up_NF, residual_NM)
