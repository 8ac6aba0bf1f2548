"""Swapping: pages of a paged cache that are copied to host memory and back, so that nothing is computed twice."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import groupby
from typing import Iterator, Protocol, Sequence

import torch
from torch import Tensor

from kvedu.caches.block_tables import BlockTables
from kvedu.caches.host_pages import HostPages, Parked
from kvedu.kernels.transfer import QUEUING, put


class Swappable(Protocol):
    """What swapping needs of a cache; ``PagedCache`` has it."""

    tables: BlockTables
    device: torch.device

    @property
    def page_tensors(self) -> list[Tensor]:
        """Tensors whose first axis counts pages."""

    def close_table(self, seq: int) -> Sequence[int]:
        """Forget a sequence whose table has been closed; its positions."""

    def open_table(self, positions: Sequence[int]) -> int:
        """A new sequence at these positions, whose table is still to be made."""

    def positions(self, seq: int) -> Sequence[int]:
        """Positions of a sequence's tokens."""


class SwapSpace:
    """Host memory of ``budget_bytes`` beside one paged cache; pinned where the cache is on a GPU.

    There nothing is waited for: copies join the queue, and since nobody else reads a host page, it may be given to another sequence
    before they have run. Cost: each page is read and written once on the way out and once on the way back; ``out`` and ``back`` return
    the bytes copied.
    """

    def __init__(self, cache: Swappable, budget_bytes: int) -> None:
        self._cache, self._queues, self._last = cache, cache.device.type in QUEUING, None
        self.page_bytes = sum(x[0].numel() * x.element_size() for x in cache.page_tensors)
        self.pages = HostPages(cache.tables, budget_bytes // self.page_bytes)
        self.host = [
            torch.empty(self.pages.n_pages, *x.shape[1:], dtype=x.dtype, pin_memory=self._queues)
            for x in cache.page_tensors
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of host memory held."""
        return self.pages.n_pages * self.page_bytes

    def out(self, seq: int) -> tuple[Parked, int] | None:
        """Copy a sequence out and close it: (what to give to ``back``, bytes copied). None where it does not fit."""
        done = self.pages.park(seq, self._cache.positions(seq))
        if done is None:
            return None
        parked, copies = done
        self._cache.close_table(seq)
        self._copy(copies, out=True)
        return parked, len(copies) * self.page_bytes

    def needed(self, parked: Parked) -> int:
        """Of the pages that can be had now, those that ``back`` takes."""
        return self.pages.needed(parked)

    def back(self, parked: Parked) -> tuple[int, int]:
        """Open a parked sequence again: (its new id, bytes copied). Raises ``CacheFull``, and nothing is changed."""
        seq = self._cache.open_table(parked.positions)
        try:
            copies = self.pages.restore(seq, parked)
        except Exception:
            self._cache.close_table(seq)
            raise
        self._copy([(page, place) for place, page in copies], out=False)
        return seq, len(copies) * self.page_bytes

    def drop(self, parked: Parked) -> None:
        """Forget a parked sequence."""
        self.pages.drop(parked)

    def _copy(self, pairs: list[tuple[int, int]], out: bool) -> None:
        """Between pages and host pages, (page, host page) each. Pages are gathered on the device, host pages side by side are one copy."""
        if not pairs:
            return
        pages, places = zip(*sorted(pairs, key=lambda pair: pair[1]))
        pages_n, runs = put(pages, self._cache.device), _runs(places)
        with self._in_turn():
            for held, host in zip(self._cache.page_tensors, self.host):
                rows = held.index_select(0, pages_n) if out else held.new_empty(len(pages), *held.shape[1:])
                for first, place, count in runs:
                    there, here = rows[first : first + count], host[place : place + count]
                    here.copy_(there, non_blocking=True) if out else there.copy_(here, non_blocking=True)
                if not out:
                    held.index_copy_(0, pages_n, rows)

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Copies in the block run after those of all blocks before, in whatever stream these were asked for."""
        if self._last is not None:
            self._last.wait()
        yield
        if self._queues:
            self._last = torch.Event(device=self._cache.device)
            self._last.record()


def _runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """Rising numbers as runs without a gap: index of the first, the first, how many.

    >>> _runs([3, 4, 5, 9])
    [(0, 3, 3), (3, 9, 1)]
    """
    groups = [list(group) for _, group in groupby(enumerate(places), lambda pair: pair[1] - pair[0])]
    return [(*group[0], len(group)) for group in groups]
