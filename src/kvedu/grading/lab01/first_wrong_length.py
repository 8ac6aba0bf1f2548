"""Lab 1, exercise 3: a detector for caches that are wrong from some length on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvedu.caches.concat import ConcatCache
from kvedu.config import ModelConfig
from kvedu.grading.exercise import Case, Exercise, Mistake, call
from kvedu.grading.fresh import Fresh
from kvedu.rope_config import RopeConfig

TINY = ModelConfig(
    n_layers=2, width=8, n_heads=2, n_kv_heads=1, head_dim=4, mlp_width=8, vocab_size=16, max_positions=4096, rope=RopeConfig(dim=4)
)  # fmt: skip
"""The lab's ``tiny``: what the learner's ``append_token`` feeds."""


class Forgets(ConcatCache):
    """Wrong from one length on, in one layer and in keys (side 0) or values (1) only."""

    def __init__(self, at: int, layer: int, side: int) -> None:
        super().__init__(TINY)
        self.at, self.layer, self.side = at, layer, side

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        pair = [x.clone() for x in super()._read(layer, seq, length)]
        if layer == self.layer and length >= self.at:
            pair[self.side][0] = 0
        return pair[0], pair[1]


def cases(fresh: Fresh) -> list[Case]:
    """Caches that are right, that are wrong early, late, just at the limit and just past it, in each layer and side."""
    late = fresh.integer(50, 60)
    places = [(1, 0, 0), (2, 1, 1), (fresh.integer(3, 20), 1, 0), (fresh.integer(21, 48), 0, 1), (late, 0, 0), (late + 1, 1, 1), (late + 2, 0, 1)]
    return [
        Case(f"wrong from length {at} on in the {'values' if side else 'keys'} of layer {layer}, limit {late}", (at, layer, side, late))
        for at, layer, side in places
    ]


def observe(answer: Any, at: int, layer: int, side: int, limit: int) -> Any:
    """What the detector reports."""
    return call(answer, lambda: Forgets(at, layer, side), limit)


def detector(*, same_token: bool = True, sides: slice = slice(None), layers: slice = slice(None), shift: int = 0, until: int = 0) -> Any:
    """An answer with one part changed; unchanged it is right."""

    def answer(make_cache: Callable[[], ConcatCache], limit: int) -> int | None:
        caches = [make_cache(), ConcatCache(TINY)]
        seqs = [cache.add() for cache in caches]
        for length in range(1, limit + 1 + until):
            tokens = [torch.randn(2, TINY.L, 1, TINY.K, TINY.D) for _ in range(2)]
            seen = [_append(c, s, tokens[0 if same_token else i])[layers, sides] for i, (c, s) in enumerate(zip(caches, seqs))]
            if not torch.equal(*seen):
                return length + shift
        return None

    return answer


def _append(cache: ConcatCache, seq: int, kv: Tensor) -> Tensor:
    """Append one token; return what each layer then sees, ``[L, 2, S, K, D]``."""
    seen = []
    with cache.step({seq: 1}) as view:
        for layer in range(TINY.L):
            view.append(layer, kv[0, layer], kv[1, layer])
            k_SKD, v_SKD, _ = view.gather(layer, seq)
            seen.append(torch.stack((k_SKD, v_SKD)))
    return torch.stack(seen)


EXERCISE = Exercise(
    title="A detector for caches that forget",
    read="book/01-what-is-the-kv-cache",
    hint="Each cache needs a sequence of its own, and both get the same random token. After i appends the length is i.",
    checked="seven caches, wrong at the first length, in the middle, at the limit or past it, in keys or values of either layer",
    cases=cases,
    observe=observe,
    right=detector(),
    mistakes=(
        Mistake(detector(same_token=False), "right caches are called wrong; do both caches get the same tokens?"),
        Mistake(detector(sides=slice(1)), "only keys are compared; a cache can lose values alone"),
        Mistake(detector(sides=slice(1, 2)), "only values are compared; a cache can lose keys alone"),
        Mistake(detector(layers=slice(1)), "only the first layer is compared; append_token returns all of them"),
        Mistake(detector(shift=-1), "it counts indices, not lengths: after the first append the length is 1"),
        Mistake(detector(until=-1), "it stops one token before the limit; lengths up to the limit count, the limit too"),
        Mistake(detector(until=4), "it goes on past the limit; a cache that agrees up to the limit gets None"),
    ),
)
