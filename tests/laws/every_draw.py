"""A random stream that takes every branch in turn: the exact distribution of what a random program returns."""

from __future__ import annotations

from collections import defaultdict
from typing import Callable, Hashable, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result", bound=Hashable)
NEVER = 1e-13
"""Branches below this probability are rounding, not choices."""


class EveryDraw:
    """Stands in for ``Draws``: replays the choices in ``script``, then takes the first branch and notes the others."""

    def __init__(self, script: list[int]) -> None:
        self.script, self.sizes, self.at, self.probability = script, [], 0, 1.0

    def _choose(self, options: list[tuple[object, float]]) -> object:
        options = [(value, p) for value, p in options if p > NEVER]
        if self.at == len(self.script):
            self.script.append(0)
        value, p = options[self.script[self.at]]
        self.sizes.append(len(options))
        self.at += 1
        self.probability *= p
        return value

    def happens(self, probability: float) -> bool:
        return self._choose([(True, min(1.0, probability)), (False, 1 - probability)])

    def pick(self, p_V: Tensor) -> int:
        return self._choose(list(enumerate((p_V / p_V.sum()).tolist())))


def every_outcome(run: Callable[[EveryDraw], Result]) -> dict[Result, float]:
    """Each result that ``run`` can have and its probability, by running it once for every path of its choices."""
    found: dict[Result, float] = defaultdict(float)
    script: list[int] = []
    while True:
        draws = EveryDraw(script)
        found[run(draws)] += draws.probability
        while script and script[-1] + 1 == draws.sizes[len(script) - 1]:
            script.pop()
        if not script:
            assert abs(sum(found.values()) - 1) < 1e-9, "the branches do not add up to 1"
            return dict(found)
        script[-1] += 1


def distance(a: dict[Result, float], b: dict[Result, float]) -> float:
    """Total variation distance of two distributions."""
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in {*a, *b}) / 2


def random_distribution(V: int, generator: torch.Generator, zeros: int = 0) -> Tensor:
    """Float64 probabilities ``[V]``, some of them 0."""
    p_V = torch.rand(V, generator=generator, dtype=torch.float64)
    p_V[torch.randperm(V, generator=generator)[:zeros]] = 0
    return p_V / p_V.sum()
