"""Host memory for the pages of sequences that wait: ids and counts, no tensors.

A sequence that is *parked* gives its blocks back; what they hold goes to host pages, of which there
is a fixed number. A full page that several parked sequences share is kept once; one whose content
still lies in a block, because somebody else uses it or a reuse policy remembers it, is not copied back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from kvedu.caches.block_tables import BlockTables
from kvedu.errors import CacheFull

Copies = list[tuple[int, int]]
"""Pairs (from, to) of a block and a host page, or the other way round."""


@dataclass(frozen=True, eq=False)
class Parked:
    """A sequence put aside: positions of its tokens, and the host pages that hold them, in order."""

    positions: Sequence[int]
    pages: tuple[int, ...]


class HostPages:
    """``n_pages`` host pages beside the blocks of ``tables``.

    Content is told by block and version (``BlockPool.versions``), and only full pages are shared: a page that
    is still being filled belongs to one sequence.
    """

    def __init__(self, tables: BlockTables, n_pages: int) -> None:
        self.tables, self.n_pages = tables, n_pages
        self._free = list(range(n_pages))
        self._users = [0] * n_pages
        self._content: dict[int, tuple[int, int]] = {}
        self._page_of: dict[tuple[int, int], int] = {}

    @property
    def free(self) -> int:
        """Host pages that hold nothing."""
        return len(self._free)

    def park(self, seq: int, positions: Sequence[int]) -> tuple[Parked, Copies] | None:
        """Close a sequence; copies (block, host page) to be made before anything else is written.

        None, and nothing changes, where host memory has too few pages left.
        """
        pool, table = self.tables.pool, self.tables.tables[seq]
        full = len(positions) // pool.block_size
        pages = [self._page_of.get((block, pool.versions[block])) if i < full else None for i, block in enumerate(table)]
        if pages.count(None) > len(self._free):
            return None
        copies = []
        for i, block in enumerate(table):
            if pages[i] is None:
                pages[i] = self._free.pop()
                copies.append((block, pages[i]))
                if i < full:
                    self._same(pages[i], block)
            self._users[pages[i]] += 1
        self.tables.close(seq)
        return Parked(positions, tuple(pages)), copies

    def needed(self, parked: Parked) -> int:
        """Of the blocks that can be had now, those that ``restore`` takes."""
        blocks = map(self._block_of, parked.pages)
        return sum(block is None or self.tables.pool.references[block] == 0 for block in blocks)

    def restore(self, seq: int, parked: Parked) -> Copies:
        """Give a parked sequence a table again; copies (host page, block) to be made. Raises ``CacheFull``."""
        pool, needed = self.tables.pool, self.needed(parked)
        if needed > pool.available:
            raise CacheFull(f"to come back takes {needed} blocks; {pool.available} of {pool.n_blocks} can be had")
        blocks = [self._block_of(page) for page in parked.pages]
        for block in blocks:
            if block is not None:
                pool.share(block)  # all of them before any is taken, which could evict one
        copies = []
        for i, page in enumerate(parked.pages):
            if blocks[i] is None:
                blocks[i] = pool.take()
                copies.append((page, blocks[i]))
                if page in self._content:
                    self._same(page, blocks[i])
        self.tables.tables[seq] = blocks
        self.drop(parked)
        return copies

    def drop(self, parked: Parked) -> None:
        """Forget a parked sequence."""
        for page in parked.pages:
            self._users[page] -= 1
            if not self._users[page]:
                self._page_of.pop(self._content.pop(page, None), None)
                self._free.append(page)

    def _same(self, page: int, block: int) -> None:
        """The page and the block hold the same from now on."""
        self._page_of.pop(self._content.get(page), None)
        self._content[page] = (block, self.tables.pool.versions[block])
        self._page_of[self._content[page]] = page

    def _block_of(self, page: int) -> int | None:
        """The block that still holds what the page holds and may be shared, if there is one."""
        pool = self.tables.pool
        block, version = self._content.get(page, (None, None))
        if block is None or pool.versions[block] != version:
            return None
        return block if pool.references[block] or (pool.reuse is not None and pool.reuse.holds(block)) else None
