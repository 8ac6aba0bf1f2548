"""Token ids into a cache, some at a time: the one way in which everything here reads a text."""

from __future__ import annotations

from typing import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import Cache
from kvedu.config import ModelConfig
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer

MakeCache = Callable[[ModelConfig], Cache]
"""A way to make the cache that is judged: ``ConcatCache``, or ``lambda config: WindowCache(config, window=256)``."""


def made(model: Transformer, make: MakeCache) -> Cache:
    """The cache that ``make`` makes for a model. Raises ``RequestError`` where it makes something else."""
    cache = make(model.config)
    if not isinstance(cache, Cache):
        raise RequestError(f"make(config) must return a cache, not {type(cache).__name__}; for instance `lambda config: QuantizedCache(config, ...)`")
    return cache


def step(model: Transformer, cache: Cache, ids: Mapping[int, Sequence[int]]) -> Tensor:
    """Hidden states ``[N, M]`` of one ragged step, the sequences' new tokens one after the other."""
    flat = [token for tokens in ids.values() for token in tokens]
    with cache.step({seq: len(tokens) for seq, tokens in ids.items()}) as view:
        return model.hidden(torch.tensor(flat, device=model.device), view)


def in_chunks(model: Transformer, cache: Cache, seq: int, ids: Sequence[int], chunk: int | None) -> Iterator[Tensor]:
    """Hidden states of a text brought ``chunk`` tokens at a time (None: all in one step).

    Inside a step every token sees the step's others in full precision, and nothing is evicted before it
    ends: 1 is what decoding does, None what a prefill in one piece does.
    """
    if chunk is not None and chunk < 1:
        raise RequestError(f"a chunk brings at least 1 token, not {chunk}; None brings all in one step")
    for start in range(0, len(ids), chunk or max(len(ids), 1)):
        yield step(model, cache, {seq: ids[start : start + (chunk or len(ids))]})


def checked(model: Transformer, ids: Sequence[int], least: int = 1) -> list[int]:
    """The ids as a list. Raises ``RequestError`` for fewer than ``least`` or ids outside the vocabulary."""
    ids = list(ids)
    if len(ids) < least:
        raise RequestError(f"{len(ids)} tokens are too few here; give at least {least}")
    if min(ids) < 0 or max(ids) >= model.config.V:
        raise RequestError(f"ids must lie in 0 .. {model.config.V - 1}; these reach from {min(ids)} to {max(ids)}")
    return ids
