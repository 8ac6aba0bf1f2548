"""Train a rewritten model's attention to give what the original's gave, one layer after the other.

Pooled heads are a poor start. Here each layer gets a goal of its own: after attention, the residual stream
should be what it is in the original. No gradient crosses a layer, so a step costs one attention layer,
not a model, and a few thousand tokens are enough to learn from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterator

import torch
from torch import Tensor

from kvedu.caches.none import NoCache
from kvedu.config import ModelConfig
from kvedu.errors import ConfigError
from kvedu.model.transformer import Block, Transformer


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: passes over the sequences, sequences a step, the highest learning rate (AdamW)."""

    epochs: int = 6
    batch: int = 4
    rate: float = 8e-3
    warmup: int = 5


@dataclass(frozen=True)
class Imitated:
    """A layer that was trained: its error before and after, and the residual streams that leave it.

    An error is the mean over tokens of the squared distance to the goal, as a share of the goal's
    square, on the sequences trained on. ``x_BTM`` leaves the rewritten model's layer, ``y_BTM`` the original's.
    """

    layer: int
    before: float
    after: float
    x_BTM: Tensor
    y_BTM: Tensor


def imitate(
    original: Transformer, model: Transformer, ids_BT: Tensor, schedule: Schedule, done: Imitated | None = None
) -> Iterator[Imitated]:
    """Train the attention of ``model``'s layers in place, first to last, yielding after each.

    ``ids_BT`` are B sequences of T tokens. ``done`` continues after a layer that an earlier run finished.
    Nothing is random but the order of sequences, seeded by the layer. Cost per layer: ``epochs`` forward and
    backward passes of one attention layer over B T tokens, and one forward pass of both models' layers.

    Raises ``ConfigError`` if the two differ in more than their KV heads, or a weight is packed.
    """
    if original.config.with_kv_heads(model.config.K) != model.config:
        raise ConfigError("the two models must be the same but for their KV heads; rewrite one from the other")
    if any(block.attn.qkv.weight is None for block in (*original.layers, *model.layers)):
        raise ConfigError("packed weights cannot be trained; call unpack() on both models first")
    with torch.no_grad():
        x_BTM = y_BTM = original.embed(ids_BT) if done is None else None
    if done is not None:
        x_BTM, y_BTM = done.x_BTM, done.y_BTM
    for layer in range(0 if done is None else done.layer + 1, model.config.L):
        ours, theirs = _Lone(model, layer), _Lone(original, layer)
        with torch.no_grad():
            after_attention = y_BTM + theirs.attention(y_BTM)
        before, after = _train(ours, x_BTM, after_attention - x_BTM, schedule, seed=layer)
        with torch.no_grad():
            x_BTM, y_BTM = ours.rest(x_BTM + ours.attention(x_BTM)), theirs.rest(after_attention)
        yield Imitated(layer, before, after, x_BTM, y_BTM)


class _Lone:
    """One layer of a model as a model of one layer; the weights are the model's own."""

    def __init__(self, model: Transformer, layer: int) -> None:
        self.config: ModelConfig = replace(model.config, n_layers=1, windowed_layers=None,
                                           sliding_window=model.config.window(layer))  # fmt: skip
        with torch.device("meta"):
            self.block = Block(self.config, 0)
        self.block.load_state_dict(model.layers[layer].state_dict(keep_vars=True), assign=True)

    def attention(self, x_BTM: Tensor) -> Tensor:
        """What attention adds to the residual stream."""
        cache = NoCache(self.config, dtype=x_BTM.dtype, device=x_BTM.device)
        with cache.step({cache.add(): x_BTM.shape[1] for _ in x_BTM}) as view:
            x_NM = self.block.attn_norm(x_BTM.flatten(0, 1))
            return self.block.attn(x_NM, torch.zeros_like(x_NM), view).view_as(x_BTM)

    def rest(self, x_BTM: Tensor) -> Tensor:
        """What leaves the layer: the MLP, added to what attention left."""
        x_NM = x_BTM.flatten(0, 1)
        return self.block.mlp(self.block.mlp_norm(x_NM), x_NM).view_as(x_BTM)


def _error(ours: _Lone, x_BTM: Tensor, goal_BTM: Tensor) -> Tensor:
    """Per token relative to the goal's own size: a few tokens are a thousand times larger than the rest."""
    missed_BT = (ours.attention(x_BTM) - goal_BTM).pow(2).mean(-1)
    return (missed_BT / goal_BTM.pow(2).mean(-1)).mean()


def _train(ours: _Lone, x_BTM: Tensor, goal_BTM: Tensor, schedule: Schedule, seed: int) -> tuple[float, float]:
    with torch.no_grad():
        before = _error(ours, x_BTM, goal_BTM).item()
    parameters = list(ours.block.attn.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=schedule.rate, betas=(0.9, 0.95), weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    batches = [b for _ in range(schedule.epochs) for b in torch.randperm(len(x_BTM), generator=generator).split(schedule.batch)]
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate * min((step + 1) / schedule.warmup, 1 - step / len(batches))
        optimizer.zero_grad()
        _error(ours, x_BTM[batch], goal_BTM[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        return before, _error(ours, x_BTM, goal_BTM).item()
