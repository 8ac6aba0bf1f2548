"""Swapping: pages of a paged cache that are copied to host memory and back, so that nothing is computed twice."""

from __future__ import annotations

from typing import Protocol, Sequence

import torch
from torch import Tensor

from kvedu.caches.block_tables import BlockTables
from kvedu.caches.host_pages import HostPages, Parked


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

    Cost: each page is read and written once on the way out and once on the way back; ``out`` and ``back`` return
    the bytes copied.
    """

    def __init__(self, cache: Swappable, budget_bytes: int) -> None:
        self._cache = cache
        self.page_bytes = sum(x[0].numel() * x.element_size() for x in cache.page_tensors)
        self.pages = HostPages(cache.tables, budget_bytes // self.page_bytes)
        self.host = [
            torch.empty(self.pages.n_pages, *x.shape[1:], dtype=x.dtype, pin_memory=cache.device.type == "cuda")
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
        self._copy(self._cache.page_tensors, self.host, copies)
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
        self._copy(self.host, self._cache.page_tensors, copies)
        return seq, len(copies) * self.page_bytes

    def drop(self, parked: Parked) -> None:
        """Forget a parked sequence."""
        self.pages.drop(parked)

    def _copy(self, sources: list[Tensor], targets: list[Tensor], copies: list[tuple[int, int]]) -> None:
        if copies:
            old, new = (torch.tensor(ids) for ids in zip(*copies))
            for source, target in zip(sources, targets):
                rows = source.index_select(0, old.to(source.device)).to(target.device)
                target.index_copy_(0, new.to(target.device), rows)
