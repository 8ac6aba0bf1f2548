"""Multi-head latent attention (MLA): a short latent per token in the cache, keys and values of all heads made from it.

One set of weights, computed in one of two ways that give the same numbers (``config.latent.absorbed``):

- *written out*: every token's latent is multiplied up into H keys and H values, which are cached and attended to as
  in MHA. It says what MLA means.
- *absorbed*: a head's score is q . (U_k c) = (U_k^T q) . c, so the query is multiplied by U_k^T once and meets the
  latent itself; likewise the weighted sum is taken of latents and multiplied by U_v once. Only Z + R
  elements a token are cached and read: attention becomes MQA with one wide KV head.

RoPE would stand between U_k and its transpose, differently for every pair of positions, and so cannot be absorbed.
That is why the rotated part is apart: R elements of each query, and one key of R elements that all heads share.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.config_latent import NORM_EPS
from kvedu.model.layers import Linear, RMSNorm


class HeadMaps(nn.Module):
    """One matrix per head, ``[heads * n_out, n_in]`` in one piece: latents up to heads, or a head's query down to the latent."""

    def __init__(self, heads: int, n_in: int, n_out: int) -> None:
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(torch.empty(heads * n_out, n_in))

    @property
    def per_head(self) -> Tensor:
        """The matrices, ``[heads, n_out, n_in]``."""
        return self.weight.unflatten(0, (self.heads, -1))

    def up(self, c_NZ: Tensor) -> Tensor:
        """Every head's own view of a latent: ``[N, heads, n_out]``."""
        return (c_NZ @ self.weight.T).unflatten(1, (self.heads, -1))

    def transposed(self, q_NHD: Tensor) -> Tensor:
        """U^T q, head by head: ``[N, heads, n_in]``."""
        return torch.bmm(q_NHD.transpose(0, 1), self.per_head).transpose(0, 1)

    def each(self, o_NHZ: Tensor) -> Tensor:
        """U o, each head its own latent: ``[N, heads, n_out]``."""
        return torch.bmm(o_NHZ.transpose(0, 1), self.per_head.transpose(1, 2)).transpose(0, 1)


class LatentAttention(nn.Module):
    """MLA over whatever cache the view belongs to; ``LatentCache`` stores its latents once.

    A head's query is [rotated R | nope], a cached vector [rotated R | latent Z]: the rotated part first, where
    ``view.rotate`` turns it. Cost of a decoded token over S cached ones: absorbed 2 S (2 Z + R) FLOPs a head and
    S (Z + R) elements read in all; written out 2 S (D + Dv) FLOPs and S (D + Dv) elements a head.
    Source: DeepSeek-V2 (2024), section 2.1 and appendix C; their W^UK, W^UV are ``k_up``, ``v_up``.
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer, self.latent = config, layer, config.latent
        latent, H, M = config.latent, config.H, config.M
        q_in = M
        if latent.query_width is not None:
            q_in = latent.query_width
            self.q_down = Linear(M, q_in, bias=config.qkv_bias)
            self.q_norm = RMSNorm(q_in, NORM_EPS)
        self.q = Linear(q_in, H * latent.query_key_width)
        self.kv_down = Linear(M, latent.rope_width + latent.width, bias=config.qkv_bias)
        self.kv_norm = RMSNorm(latent.width, NORM_EPS)
        self.k_up = HeadMaps(H, latent.width, latent.nope_width)
        self.v_up = HeadMaps(H, latent.width, latent.value_width)
        self.out = Linear(H * latent.value_width, M, bias=config.out_bias)
        self.q_scale = score_scale(config) * math.sqrt(config.D)

    def forward(self, x_NM: Tensor, residual_NM: Tensor, view: View) -> Tensor:
        R = self.latent.rope_width
        q_NHD = self.queries(x_NM)
        shared_NR, c_NZ = self.latents(x_NM)
        if self.latent.absorbed:
            q_NHD = torch.cat((q_NHD[..., :R], self.k_up.transposed(q_NHD[..., R:])), dim=-1)
            k_NKD = torch.cat((shared_NR, c_NZ), dim=-1)[:, None]
        else:
            k_up_NHD = self.k_up.up(c_NZ)
            k_NKD = torch.cat((shared_NR[:, None].expand(-1, self.config.H, -1), k_up_NHD), dim=-1)
        q_NHD, k_NKD = view.rotate(q_NHD, k_NKD)
        v_NKD = k_NKD[..., R:] if self.latent.absorbed else self.v_up.up(c_NZ)
        view.append(self.layer, k_NKD, v_NKD)
        o_NHD = view.attend(self.layer, q_NHD * self.q_scale)
        if self.latent.absorbed:
            o_NHD = self.v_up.each(o_NHD)
        return self.out(o_NHD.flatten(1), residual_NM)

    def queries(self, x_NM: Tensor) -> Tensor:
        """Queries of all heads, ``[N, H, R + nope]``, the part to rotate first."""
        if self.latent.query_width is not None:
            x_NM = self.q_norm(self.q_down(x_NM))
        return self.q(x_NM).unflatten(1, (self.config.H, -1))

    def latents(self, x_NM: Tensor) -> tuple[Tensor, Tensor]:
        """What a token leaves behind: the shared key to rotate, ``[N, R]``, and the normed latent, ``[N, Z]``."""
        shared_NR, c_NZ = self.kv_down(x_NM).split((self.latent.rope_width, self.latent.width), dim=-1)
        return shared_NR, self.kv_norm(c_NZ)


def score_scale(config: ModelConfig) -> float:
    """What multiplies q . k: 1 / sqrt(R + nope), whichever way it is computed, and YaRN's sharpening where a config asks for it.

    With ``mscale_all_dim`` the whole score is sharpened, not only its rotated part: cos and sin carry
    mscale / mscale_all_dim, which is 1 for the published models, and the scale carries the square of the latter.
    """
    rope, scale = config.rope, config.latent.query_key_width**-0.5
    if rope.kind == "default" or not rope.mscale_all_dim or rope.factor <= 1:
        return scale
    return scale * (0.1 * rope.mscale_all_dim * math.log(rope.factor) + 1.0) ** 2
