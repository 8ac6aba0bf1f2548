"""A ring of keys and values: the last W tokens in W places, each new token on top of the one that has left the window.

The first ``sinks`` places are not part of the ring: their tokens stay for ever. Nothing is shifted and
nothing grows; order in memory is not order in the text, and a caller that cares asks ``places``.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch
from torch import Tensor


class Ring(NamedTuple):
    """Keys ``[places, K, D]`` and values ``[places, K, Dv]`` of one sequence and layer, written in place."""

    k_RKD: Tensor
    v_RKD: Tensor

    @classmethod
    def empty(cls, places: int, K: int, D: int, Dv: int, dtype: torch.dtype, device: torch.device) -> Ring:
        """All the memory that a sequence will ever need in a layer; zeros, so that an unused place spoils nothing."""
        return cls(*(torch.zeros(places, K, width, dtype=dtype, device=device) for width in (D, Dv)))

    def copy(self) -> Ring:
        """The same in memory of its own."""
        return Ring(self.k_RKD.clone(), self.v_RKD.clone())

    def rows(self, index_S: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of some places, in this order."""
        return self.k_RKD[index_S], self.v_RKD[index_S]

    def write(self, index_S: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> None:
        """Overwrite some places."""
        self.k_RKD.index_copy_(0, index_S, k_SKD.to(self.k_RKD.dtype))
        self.v_RKD.index_copy_(0, index_S, v_SKD.to(self.v_RKD.dtype))


def places(positions: Sequence[int], sinks: int, window: int) -> list[int]:
    """Where in the ring the tokens at these positions of the text lie.

    >>> places([0, 1, 2, 3, 4, 5, 6], sinks=1, window=4)    # 5 takes the place of 1, 6 that of 2
    [0, 1, 2, 3, 4, 1, 2]
    """
    return [p if p < sinks else sinks + (p - sinks) % window for p in positions]
