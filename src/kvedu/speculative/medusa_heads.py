"""Medusa's heads: one small layer for each distance ahead, all of them from one output of the target."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from kvedu.errors import RequestError
from kvedu.model.layers import Linear, RMSNorm
from kvedu.model.transformer import Transformer
from kvedu.speculative.eagle_head import HeadShape


class MedusaHeads(nn.Module):
    """``k`` heads; head j (from 0) sees what the target made of a token and foretells the token j + 2 places on.

    (The token one place on is the target's own choice and known already.) Each is ``x + silu(W x + b)`` of the normed output;
    the R rows of the target's own head make logits of it. None sees what the others guess. Cai et al. 2024 (2401.10774).
    """

    def __init__(self, shape: HeadShape, k: int) -> None:
        super().__init__()
        if k < 1 or shape.taps != (shape.config.L,):
            raise RequestError(f"Medusa is 1 or more heads on the last block, {shape.config.L}; got {k} on {list(shape.taps)}")
        M = shape.config.M
        self.shape = shape
        self.norm = RMSNorm(M, shape.config.norm_eps)
        self.heads = nn.ModuleList(Linear(M, M, bias=True) for _ in range(k))

    def forward(self, hidden_NM: Tensor) -> Tensor:
        """Features ``[N, k, M]`` of the tokens 2, 3, … k + 1 places on."""
        x_NM = self.norm(hidden_NM)
        return torch.stack([x_NM + silu(head(x_NM)) for head in self.heads], dim=1)


def fresh_medusa(shape: HeadShape, target: Transformer, k: int, seed: int = 0) -> MedusaHeads:
    """Heads to be trained: each begins as a guess that the next token comes again."""
    heads, generator = MedusaHeads(shape, k).to(torch.float32), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        heads.norm.weight.copy_(target.norm.weight)
        for head in heads.heads:
            head.weight.normal_(0, 0.02, generator=generator)
            head.bias.zero_()
    return heads
