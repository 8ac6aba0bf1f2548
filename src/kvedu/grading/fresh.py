"""Fresh random inputs: the same for the same seed, without touching anybody else's random numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Fresh:
    """A source of random inputs of its own, made from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal values of a shape, on the CPU."""
        return torch.randn(*shape, generator=self._generator, dtype=dtype)

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self._random.randint(low, high)

    def choice(self, options: Sequence[T]) -> T:
        """One of the options."""
        return self._random.choice(options)

    def tokens(self, count: int, vocabulary: int) -> list[int]:
        """Token ids below ``vocabulary``."""
        return [self._random.randrange(vocabulary) for _ in range(count)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        return self._random.sample(items, len(items))
