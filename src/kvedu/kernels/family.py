"""Who sees whom in a step with token trees, as bits: what an attention kernel reads in the place of a mask.

A tree's new token sees the committed tokens of its sequence and, of the new ones, those on its own
path: its ancestors and itself. A bit for each new token says which; position alone would let it see its uncles.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor

WORD = 64
"""Bits of an int64."""


def paths(parents: Sequence[int], window: int | None = None) -> list[int]:
    """Bits of each new token: bit i where new token i lies on its path. ``parents`` as in ``Cache.step``.

    With a window only the last ``window`` of a path.

    >>> [bin(path) for path in paths([-1, 0, 0, 2])]
    ['0b1', '0b11', '0b101', '0b1101']
    >>> [bin(path) for path in paths([-1, 0, 0, 2], window=2)]
    ['0b1', '0b11', '0b101', '0b1100']
    """
    found: list[int] = []
    for i, parent in enumerate(parents):
        found.append(1 << i | (found[parent] if parent >= 0 else 0))
    return [_last(path, window) for path in found] if window else found


def _last(path: int, count: int) -> int:
    while path.bit_count() > count:
        path &= path - 1  # the lowest bit is the oldest
    return path


def family(rows: Sequence[tuple[int, int, int]], parents: Sequence[Sequence[int] | None], window: int | None = None) -> Tensor:
    """``[N, words]`` int64 of a step, words enough for its longest tree; all 0 for tokens of no tree.

    ``rows`` as in ``PagedLayout``; ``parents`` gives a tree's parents, None for a sequence that is no tree.
    """
    words = max((-(-len(tree) // WORD) for tree in parents if tree is not None), default=0)
    bits = [0] * (words * sum(new for _, new, _ in rows))
    for (first, _, _), tree in zip(rows, parents):
        if tree is not None:
            for t, path in enumerate(paths(tree, window), first):
                for w in range(words):
                    word = path >> w * WORD & (1 << WORD) - 1
                    bits[t * words + w] = word - (1 << WORD) if word >> WORD - 1 else word
    return torch.tensor(bits, dtype=torch.int64, device="cpu").view(-1, words)


def visible_in_family(path_words: Tensor, new: int) -> Tensor:
    """Boolean ``[T, new]`` of a tree's rows of ``family``: which of the new tokens each sees.

    >>> visible_in_family(family([(0, 3, 5)], [[-1, 0, 0]]), 3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    """
    place = torch.arange(new, device=path_words.device)
    return (path_words[:, place // WORD] >> place % WORD & 1).bool()
