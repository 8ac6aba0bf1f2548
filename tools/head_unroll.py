"""A head run over whole sequences with gradients, several drafted tokens deep: what training sees is what drafting does.

EAGLE-3's training-time test: at depth 1 every place starts from the target's feature; at depth s from the head's own
feature of depth s - 1, one place earlier, and it attends as it will when it drafts: to true pairs up to s - 1 places
back, and to its own drafted pairs of depths 2 .. s.
"""

from __future__ import annotations

from typing import Iterator

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from kvedu.kernels.rope import cos_sin, rotate
from kvedu.model.transformer import Block
from kvedu.speculative.eagle_head import EagleHead


def rms(x: Tensor, weight_M: Tensor, eps: float) -> Tensor:
    """RMSNorm in fp32, with gradients."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight_M


class Sight:
    """Attention of one layer, depth by depth: keys of depth 1 by place, those of later depths along a diagonal."""

    def __init__(self, block: Block, T: int) -> None:
        self.attn, config = block.attn, block.attn.config
        self.H, self.K, self.D = config.H, config.K, config.D
        self.turn = cos_sin(config.rope, torch.arange(T + 8), torch.float32)
        self.far_TT = torch.arange(T)[:, None] - torch.arange(T)[None]
        self.k: list[Tensor] = []
        self.v: list[Tensor] = []

    def __call__(self, x_BTM: Tensor) -> Tensor:
        """Attention's output of the next depth. The pair drafted at depth s from place i stands at place i, its text position."""
        (B, T, _), H, K, D = x_BTM.shape, self.H, self.K, self.D
        q, k, v = linear(x_BTM, self.attn.qkv.weight).view(B * T, H + 2 * K, D).split((H, K, K), dim=1)
        cos, sin = (t[:T].repeat(B, 1, 1) for t in self.turn)
        q_BKGTD = rotate(q.float(), cos, sin).view(B, T, K, H // K, D).permute(0, 2, 3, 1, 4) / D**0.5
        k_BKTD = rotate(k.float(), cos, sin).view(B, T, K, D).transpose(1, 2)
        self.k.append(k_BKTD)
        self.v.append(v.view(B, T, K, D).transpose(1, 2))
        depth = len(self.k)
        scores = torch.matmul(q_BKGTD, self.k[0][:, :, None].transpose(-1, -2)).float()
        scores = scores.masked_fill(self.far_TT < depth - 1, -torch.inf)
        later = range(2, depth + 1)
        near = [(q_BKGTD * back(self.k[d - 1], depth - d)[:, :, None]).sum(-1, keepdim=True).float() for d in later]
        # Places too early to have a past of this depth see nothing true; their row is masked out of the loss.
        scores = scores.masked_fill((self.far_TT < depth - 1).all(-1)[:, None], 0.0)
        weights = torch.softmax(torch.cat((scores, *near), dim=-1), dim=-1)
        out = torch.matmul(weights[..., :T].to(v.dtype), self.v[0][:, :, None])
        for i, d in enumerate(later):
            out = out + weights[..., T + i : T + i + 1].to(v.dtype) * back(self.v[d - 1], depth - d)[:, :, None]
        return linear(out.permute(0, 3, 1, 2, 4).reshape(B, T, H * D), self.attn.out.weight)


def back(x_BKTD: Tensor, places: int) -> Tensor:
    """What stood ``places`` earlier, zeros before the beginning."""
    if not places:
        return x_BKTD
    return torch.cat((torch.zeros_like(x_BKTD[:, :, :places]), x_BKTD[:, :, :-places]), dim=2)


def layer(block: Block, sight: Sight, x_BTM: Tensor, eps: float) -> Tensor:
    """One decoder layer, attention by ``sight``."""
    x_BTM = x_BTM + sight(rms(x_BTM, block.attn_norm.weight, eps))
    gate, up = linear(rms(x_BTM, block.mlp_norm.weight, eps), block.mlp.gate_up.weight).chunk(2, dim=-1)
    return x_BTM + linear(silu(gate) * up, block.mlp.down.weight)


def unroll(head: EagleHead, embedded_BTM: Tensor, features_BTE: Tensor, depth: int) -> Iterator[Tensor]:
    """Features ``[B, T - 1, M]`` of depths 1, 2, …: place i holds what comes after token i + 1.

    ``embedded_BTM`` are the tokens' embeddings. At depth s the s - 1 first places have no past and mean nothing.
    """
    eps, step = head.shape.config.norm_eps, head.step
    parts = features_BTE[:, :-1].split(head.shape.config.M, dim=-1)
    f = linear(torch.cat([rms(part, norm.weight, eps) for norm, part in zip(head.tap_norms, parts)], -1), head.fuse.weight)
    tokens = rms(embedded_BTM[:, 1:], step.embed_norm.weight, eps)
    sight = Sight(step.block, f.shape[1])
    for _ in range(depth):
        x = linear(torch.cat((tokens, f.float()), dim=-1), step.fc.weight)
        out = rms(layer(step.block, sight, x, eps), step.norm.weight, eps)
        yield out
        f = torch.cat((torch.zeros_like(out[:, :1]), out[:, :-1]), dim=1)
