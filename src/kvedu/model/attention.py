"""Self-attention of one layer: project, rotate, append to the cache, attend, project back.

MHA, MQA and GQA are this one class; they differ in how many KV heads the config names.
"""

from __future__ import annotations

from torch import Tensor, nn

from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.model.layers import Linear, RMSNorm


class Attention(nn.Module):
    """Attention of ragged new tokens over whatever cache the view belongs to.

    A layer that reads another's keys and values (``config.kv_source``) projects queries only.
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.slot, self.own = config.kv_slot(layer), config.reads_own(layer)
        H, K, D = config.H, config.K if self.own else 0, config.D
        self.qkv = Linear(config.M, (H + 2 * K) * D, bias=config.qkv_bias)
        self.out = Linear(H * D, config.M, bias=config.out_bias)
        self.q_norm = RMSNorm(D, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(D, config.norm_eps) if config.qk_norm and self.own else None

    def forward(self, x_NM: Tensor, residual_NM: Tensor, view: View) -> Tensor:
        H, K, D = self.config.H, self.config.K if self.own else 0, self.config.D
        q_NHD, k_NKD, v_NKD = self.qkv(x_NM).view(-1, H + 2 * K, D).split((H, K, K), dim=1)
        if self.q_norm is not None:
            q_NHD = self.q_norm(q_NHD)
        if self.k_norm is not None:
            k_NKD = self.k_norm(k_NKD)
        q_NHD, k_NKD = view.rotate(q_NHD, k_NKD)
        if self.own:
            view.append(self.slot, k_NKD, v_NKD)
        o_NHD = view.attend(self.slot, q_NHD)
        return self.out(o_NHD.flatten(1), residual_NM)
