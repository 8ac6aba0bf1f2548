"""A mixture of experts: each token runs the few MLPs that its router scores best, and one that all tokens share.

It does not touch the cache; it is here so that checkpoints with latent attention, which have experts, load whole.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from kvedu.config import ModelConfig
from kvedu.config_experts import ExpertsConfig
from kvedu.model.layers import Mlp


class Router(nn.Module):
    """Which experts a token runs and with what weights; computed in fp32, whatever the model's dtype."""

    def __init__(self, experts: ExpertsConfig, width: int) -> None:
        super().__init__()
        self.experts = experts
        self.weight = nn.Parameter(torch.empty(experts.count, width))
        self.bias = nn.Parameter(torch.empty(experts.count)) if experts.scoring == "sigmoid" else None

    def forward(self, x_NM: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the chosen experts, ``[N, chosen]`` each."""
        logits_NE = linear(x_NM.to(torch.float32), self.weight.to(torch.float32))
        score_NE = logits_NE.softmax(-1) if self.bias is None else logits_NE.sigmoid()
        rank_NE = score_NE if self.bias is None else score_NE + self.bias.to(torch.float32)
        if self.experts.groups > 1:
            hidden = 0.0 if self.bias is None else -torch.inf
            rank_NE = rank_NE.masked_fill(~self._in_best_groups(rank_NE), hidden)
        chosen_Nk = rank_NE.topk(self.experts.chosen, dim=-1).indices
        weight_Nk = score_NE.gather(1, chosen_Nk)
        if self.experts.normalized:
            weight_Nk = weight_Nk / (weight_Nk.sum(-1, keepdim=True) + 1e-20)
        return weight_Nk * self.experts.scale, chosen_Nk

    def _in_best_groups(self, rank_NE: Tensor) -> Tensor:
        """Boolean ``[N, E]``: experts of the groups that are looked at."""
        by_group = rank_NE.unflatten(1, (self.experts.groups, -1))
        best = by_group.amax(-1) if self.bias is None else by_group.topk(2, dim=-1).values.sum(-1)
        looked_at = torch.zeros_like(best, dtype=torch.bool).scatter(1, best.topk(self.experts.top_groups, dim=-1).indices, True)
        return looked_at[..., None].expand_as(by_group).flatten(1)


class Experts(nn.Module):
    """Router, experts in one piece each way, and the shared MLP; plus the residual. Cost: chosen + shared experts a token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        experts, M, F = config.experts, config.M, config.experts.width
        self.router = Router(experts, M)
        self.gate_up = nn.Parameter(torch.empty(experts.count * 2 * F, M))
        self.down = nn.Parameter(torch.empty(experts.count * M, F))
        self.shared = Mlp(config, experts.shared * F) if experts.shared else None
        self.count = experts.count

    def forward(self, x_NM: Tensor, residual_NM: Tensor) -> Tensor:
        out_NM = residual_NM if self.shared is None else self.shared(x_NM, residual_NM)
        weight_Nk, chosen_Nk = self.router(x_NM)
        gate_up_EFM, down_EMF = (w.unflatten(0, (self.count, -1)) for w in (self.gate_up, self.down))
        for expert in chosen_Nk.unique().tolist():
            rows, place = (chosen_Nk == expert).nonzero(as_tuple=True)
            gate, up = linear(x_NM[rows], gate_up_EFM[expert]).chunk(2, dim=-1)
            y = linear(silu(gate) * up, down_EMF[expert]) * weight_Nk[rows, place, None].to(x_NM.dtype)
            out_NM = out_NM.index_add(0, rows, y)
        return out_NM
