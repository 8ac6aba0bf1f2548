"""Swapping where sequences have a tail beside their pages: it goes out with them and comes back."""

from __future__ import annotations

from typing import Protocol

import torch

from kvedu.caches.host_pages import Parked
from kvedu.caches.swap import Swappable, SwapSpace
from kvedu.caches.tails import Tails


class Tailed(Swappable, Protocol):
    """What is needed of the cache beyond ``Swappable``; ``PagedQuantizedCache`` has it."""

    tails: Tails


class TailedSwapSpace(SwapSpace):
    """At most half of the budget holds tails, one for each sequence that can be parked; the rest holds pages."""

    def __init__(self, cache: Tailed, budget_bytes: int) -> None:
        tails = cache.tails.tensors
        self.tail_bytes = sum(x[0].numel() * x.element_size() for x in tails)
        n_tails = min(cache.tails.count, budget_bytes // 2 // self.tail_bytes)
        super().__init__(cache, budget_bytes - n_tails * self.tail_bytes)
        self._tails = tails
        self._host_tails = [
            torch.empty(n_tails, *x.shape[1:], dtype=x.dtype, pin_memory=self._queues) for x in tails
        ]
        self._free = list(range(n_tails))
        self._parked: dict[Parked, tuple[int, int]] = {}

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(x.numel() * x.element_size() for x in self._host_tails)

    def out(self, seq: int) -> tuple[Parked, int] | None:
        if not self._free:
            return None
        slot, first = self._cache.tails.slot(seq), self._cache.tails.exact_from[seq]
        done = super().out(seq)
        if done is None:
            return None
        parked, copied = done
        place = self._free.pop()
        with self._in_turn():
            for host, tail in zip(self._host_tails, self._tails):
                host[place].copy_(tail[slot], non_blocking=True)  # closed, but nobody has come to the slot since
        self._parked[parked] = place, first
        return parked, copied + self.tail_bytes

    def back(self, parked: Parked) -> tuple[int, int]:
        seq, copied = super().back(parked)
        place, first = self._give_back(parked)
        with self._in_turn():
            for host, tail in zip(self._host_tails, self._tails):
                tail[self._cache.tails.slot(seq)].copy_(host[place], non_blocking=True)
        self._cache.tails.exact_from[seq] = first
        return seq, copied + self.tail_bytes

    def drop(self, parked: Parked) -> None:
        super().drop(parked)
        self._give_back(parked)

    def _give_back(self, parked: Parked) -> tuple[int, int]:
        place, first = self._parked.pop(parked)
        self._free.append(place)
        return place, first
