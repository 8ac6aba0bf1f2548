"""Rings to judge a learner's by: the slow truth, which keeps everything and chooses, and the mistakes that people make."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.analysis.known_models import known_model
from kvedu.config import ModelConfig
from kvedu.kernels.attention import attention_reference
from kvedu.kernels.rope import cos_sin, rotate

_KNOWN = known_model("SmolLM2-135M").config
assert _KNOWN is not None
CONFIG: ModelConfig = _KNOWN


def turned(x_NHD: Tensor, places: list[int]) -> Tensor:
    """RoPE at these positions."""
    return rotate(x_NHD, *cos_sin(CONFIG.rope, torch.tensor(places), torch.float32))


def attention(q_HD: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> Tensor:
    """One query over all keys: [H, D]."""
    return attention_reference(q_HD[None], k_SKD, v_SKD, torch.ones(1, len(k_SKD), dtype=torch.bool))[0]


class Truth:
    """Keeps every token; chooses and numbers when it attends. It never lets go, so it is no answer."""

    def __init__(self, sinks: int, window: int, K: int, D: int) -> None:
        self.sinks, self.window, self.k, self.v = sinks, window, [], []

    def append(self, k_KD: Tensor, v_KD: Tensor) -> None:
        self.k.append(k_KD.clone())
        self.v.append(v_KD.clone())

    def held(self) -> list[int]:
        """Tokens that are held, in the order of the text."""
        n = len(self.k)
        return [i for i in range(n) if i < self.sinks or i >= n - self.window]

    def places(self, held: list[int]) -> list[int]:
        """The position that each is rotated at."""
        return list(range(len(held)))

    def query_place(self, held: list[int]) -> int:
        return len(held) - 1

    def attend(self, q_HD: Tensor) -> Tensor:
        held = self.held()
        k_SKD, v_SKD = torch.stack([self.k[i] for i in held]), torch.stack([self.v[i] for i in held])
        q_HD = turned(q_HD[None], [self.query_place(held)])[0]
        return attention(q_HD, turned(k_SKD, self.places(held)), v_SKD)


class TextPositions(Truth):
    """Rotated at positions in the text."""

    def places(self, held: list[int]) -> list[int]:
        return held

    def query_place(self, held: list[int]) -> int:
        return held[-1]


class KeysAtText(TextPositions):
    """Keys at positions in the text, the query at its place in the cache."""

    def query_place(self, held: list[int]) -> int:
        return len(held) - 1


class AsTheyLie(Truth):
    """Places are slots: the order in memory is taken for the order of the text."""

    def places(self, held: list[int]) -> list[int]:
        return [i if i < self.sinks else self.sinks + (i - self.sinks) % self.window for i in held]


class NoSinks(Truth):
    """Everything is a ring, the first tokens too."""

    def held(self) -> list[int]:
        return list(range(max(0, len(self.k) - self.sinks - self.window), len(self.k)))


class NotTurned(Truth):
    """Nothing is rotated at all."""

    def places(self, held: list[int]) -> list[int]:
        return [0] * len(held)

    def query_place(self, held: list[int]) -> int:
        return 0


def bytes_in(thing: Any) -> int:
    """Bytes of all tensors among an object's attributes, and in lists, tuples and dicts of them."""
    if isinstance(thing, Tensor):
        return thing.numel() * thing.element_size()
    if isinstance(thing, dict):
        return sum(bytes_in(x) for x in thing.values())
    if isinstance(thing, (list, tuple)):
        return sum(bytes_in(x) for x in thing)
    return 0
