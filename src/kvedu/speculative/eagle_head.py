"""The EAGLE head: one decoder layer that goes on in the target's own features, one token ahead of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import RequestError
from kvedu.model.layers import Linear, RMSNorm
from kvedu.model.transformer import Block, Transformer


@dataclass(frozen=True)
class HeadShape:
    """What a head is made for: the target's ``config``, the blocks whose outputs it reads (``taps``, from 1), R tokens to guess.

    One tap, the last block, is EAGLE-1 (2401.15077); several, low to high, EAGLE-3 (2503.01840).
    """

    config: ModelConfig
    taps: tuple[int, ...]
    R: int

    def __post_init__(self) -> None:
        if not self.taps or any(not 1 <= tap <= self.config.L for tap in self.taps):
            raise RequestError(f"taps are one or more blocks from 1 to {self.config.L}; got {list(self.taps)}")
        if not 1 <= self.R <= self.config.V:
            raise RequestError(f"a draft vocabulary has 1 to {self.config.V} tokens, not {self.R}")

    def check(self, target: Transformer) -> None:
        """Refuse another target than the head's. Raises ``RequestError`` with the numbers that disagree."""
        ours, theirs = self.config, target.config
        if (ours.M, ours.V, ours.L) != (theirs.M, theirs.V, theirs.L):
            raise RequestError(
                f"the head reads features of width {ours.M} from {ours.L} blocks and guesses among {ours.V} tokens; "
                f"the target has width {theirs.M}, {theirs.L} blocks, {theirs.V} tokens. Each target needs a head of its own"
            )

    @property
    def layer(self) -> ModelConfig:
        """Config of the head's one layer: the target's, with every earlier token in sight."""
        return replace(self.config, n_layers=1, windowed_layers=None, sliding_window=None, kv_source=None)


def next_token_layer(config: ModelConfig) -> nn.Module:
    """The part that EAGLE and MTP share: ``fc`` of (token, feature) side by side, then a decoder layer and its norm."""
    return _Step(config)


class _Step(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_norm = RMSNorm(config.M, config.norm_eps)
        self.fc = Linear(2 * config.M, config.M)
        self.block = Block(config, 0)
        self.norm = RMSNorm(config.M, config.norm_eps)

    def forward(self, embedded_NM: Tensor, f_NM: Tensor, view: View) -> Tensor:
        """Features ``[N, M]`` after the tokens, from those before them."""
        x_NM = self.fc(torch.cat((self.embed_norm(embedded_NM), f_NM), dim=-1))
        return self.norm(self.block(x_NM, view))


class EagleHead(nn.Module):
    """From the target's outputs at a token and the token that came next: the feature there, and logits of what follows.

    A *feature* is M numbers of unit scale: at a verified token ``fuse`` of the target's outputs at ``taps``, each
    normed; further on the head's own output, normed. Embedding and the R rows of the output head are the target's own,
    shared and not trained; 5 M weights for SmolLM2 are the head's.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        M, eps = shape.config.M, shape.config.norm_eps
        self.shape = shape
        self.tap_norms = nn.ModuleList(RMSNorm(M, eps) for _ in shape.taps)
        self.fuse = Linear(len(shape.taps) * M, M)
        self.step = next_token_layer(shape.layer)

    def feature(self, features_NE: Tensor) -> Tensor:
        """The target's outputs at ``taps``, side by side, as one feature ``[N, M]``."""
        parts = features_NE.split(self.shape.config.M, dim=-1)
        return self.fuse(torch.cat([norm(part.contiguous()) for norm, part in zip(self.tap_norms, parts, strict=True)], dim=-1))

    def pack(self) -> EagleHead:
        """Lay the weights out for this CPU, where that pays (see ``Transformer.pack``)."""
        for module in self.modules():
            if isinstance(module, Linear) and module.packed is None:
                module.pack()
        return self


def fresh_head(shape: HeadShape, target: Transformer, seed: int = 0) -> EagleHead:
    """A head to be trained: its layer is the target's last one, its feature the target's last output, both mixed at random."""
    head, generator = EagleHead(shape).to(torch.float32), torch.Generator().manual_seed(seed)
    last, M = target.layers[-1], shape.config.M
    own = dict(last.named_parameters())
    with torch.no_grad():
        for name, p in head.step.block.named_parameters():
            p.copy_(own[name])
        head.step.norm.weight.copy_(target.norm.weight)
        for norm in head.tap_norms:
            norm.weight.fill_(1.0)
        head.tap_norms[-1].weight.copy_(target.norm.weight)
        head.step.embed_norm.weight.fill_(1.0)
        head.fuse.weight.normal_(0, 0.02 / len(shape.taps), generator=generator)
        head.fuse.weight[:, -M:] += torch.eye(M)
        head.step.fc.weight.normal_(0, 0.03, generator=generator)
        head.step.fc.weight[:, M:] += 0.3 * torch.eye(M)
    return head

