"""Budgets of an evicting cache, for all, per layer or per head, and the heads that have one in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from kvedu.errors import CacheError

Budget = int | Sequence[int] | Sequence[Sequence[int]]
"""Tokens for every head; or for every head of each layer; or for each KV head of each layer."""


@dataclass(frozen=True)
class Part:
    """KV heads of one layer with one budget: their rows are one rectangle. ``all``: they are all heads that there are."""

    layer: int
    heads: tuple[int, ...]
    budget: int
    all: bool


def parts_of(budget: Budget, n_layers: int, K: int, least: int, what: str) -> list[Part]:
    """The parts of a cache of ``n_layers`` layers with ``K`` KV heads each.

    Raises ``CacheError`` where budgets do not fit the model, or one is under ``least`` tokens, which are ``what``.

    >>> [(part.layer, part.heads, part.budget) for part in parts_of([8, [4, 6]], 2, 2, 1, "the last 1")]
    [(0, (0, 1), 8), (1, (0,), 4), (1, (1,), 6)]
    """
    per_layer = [budget] * n_layers if isinstance(budget, int) else list(budget)
    if len(per_layer) != n_layers:
        raise CacheError(f"{len(per_layer)} budgets for {n_layers} layers; give one number for all, or one for each layer")
    parts = []
    for layer, given in enumerate(per_layer):
        heads = [given] * K if isinstance(given, int) else list(given)
        if len(heads) != K:
            raise CacheError(f"{len(heads)} budgets for the {K} KV heads of layer {layer}; give one number, or one for each head")
        if min(heads) < least:
            where = "" if isinstance(budget, int) else f" of layer {layer}"
            raise CacheError(f"a budget{where} of {min(heads)} tokens cannot hold {what}; give at least {least}")
        for size in dict.fromkeys(heads):
            same = tuple(head for head, its in enumerate(heads) if its == size)
            parts.append(Part(layer, same, size, len(same) == K))
    return parts
