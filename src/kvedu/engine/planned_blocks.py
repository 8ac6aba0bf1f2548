"""A cache without tensors: block tables and lengths, as the scheduler sees them, for the simulator."""

from __future__ import annotations

from typing import Hashable, Mapping, Sequence as Seq

from kvedu.caches.block_tables import BlockTables
from kvedu.caches.blocks import BlockPool, Reuse
from kvedu.caches.host_pages import HostPages, Parked
from kvedu.errors import CacheFull, KveduError


class PlannedBlocks:
    """The scheduler's ``Blocks``. Without forks, so no block is ever copied.

    ``block_bytes`` is what a block would hold; only swapping asks for it.
    """

    def __init__(
        self, n_blocks: int, page_size: int = 16, reuse: Reuse | None = None, block_bytes: int | None = None
    ) -> None:
        self.tables = BlockTables(BlockPool(n_blocks, page_size, reuse))
        self.page_size, self.n_blocks, self.block_bytes = page_size, n_blocks, block_bytes
        self.lengths: dict[int, int] = {}
        self._places: dict[int, int] = {}  # tokens that fit into a sequence's blocks
        self._opened = 0

    def add_prefix(self, tokens: Seq[int], salt: Hashable = None) -> tuple[int, int]:
        seq = self.open_table(0)
        reused = self.lengths[seq] = self._places[seq] = self.tables.open_prefix(seq, tokens, salt)
        return seq, reused

    def open_table(self, length: int) -> int:
        """A new sequence of this length, whose table is still to be made."""
        seq, self._opened = self._opened, self._opened + 1
        self.lengths[seq], self._places[seq] = length, self.blocks_for(length) * self.page_size
        return seq

    def close_table(self, seq: int) -> None:
        """Forget a sequence whose table has been closed."""
        del self.lengths[seq], self._places[seq]

    def matched(self, tokens: Seq[int], salt: Hashable = None) -> int:
        return self.tables.matched(tokens, salt)

    def free(self, seq: int) -> None:
        self.tables.close(seq)
        self.close_table(seq)

    def remember(self, seq: int, tokens: Seq[int], salt: Hashable = None) -> None:
        self.tables.remember(seq, tokens, salt)

    def blocks_needed(self, growth: Mapping[int, int]) -> int:
        """As ``BlockTables.needed``, quicker: nothing is shared but full blocks, which nobody writes to."""
        lengths, places, new = self.lengths, self._places, 0
        for seq, tokens in growth.items():
            more = lengths[seq] + tokens - places[seq]
            if more > 0:
                new -= -more // self.page_size
        return new

    def blocks_for(self, tokens: int) -> int:
        return self.tables.blocks_for(tokens)

    def swap_space(self, budget_bytes: int) -> PlannedSpace:
        if not self.block_bytes:
            raise KveduError("swapping counts bytes: say what a block holds (block_bytes)")
        return PlannedSpace(self, budget_bytes // self.block_bytes)

    @property
    def available(self) -> int:
        return self.tables.pool.available

    def grow(self, growth: Mapping[int, int]) -> None:
        """Take the blocks of a step and count its tokens. Raises ``CacheFull``, and nothing is changed."""
        if self.blocks_needed(growth) > self.available:
            raise CacheFull(f"a step of {sum(growth.values())} tokens does not fit into {self.available} blocks")
        lengths, places = self.lengths, self._places
        for seq, tokens in growth.items():
            length = lengths[seq]
            if length + tokens > places[seq]:
                self.tables.reserve({seq: (length, tokens)})
                places[seq] = self.blocks_for(length + tokens) * self.page_size
            lengths[seq] = length + tokens


class PlannedSpace:
    """The scheduler's ``HostSpace``: host pages are counted, nothing is copied."""

    def __init__(self, blocks: PlannedBlocks, n_pages: int) -> None:
        self._blocks, self.pages = blocks, HostPages(blocks.tables, n_pages)

    def out(self, seq: int) -> tuple[Parked, int] | None:
        done = self.pages.park(seq, range(self._blocks.lengths[seq]))
        if done is None:
            return None
        self._blocks.close_table(seq)
        return done[0], len(done[1]) * self._blocks.block_bytes

    def needed(self, parked: Parked) -> int:
        return self.pages.needed(parked)

    def back(self, parked: Parked) -> tuple[int, int]:
        seq = self._blocks.open_table(len(parked.positions))
        return seq, len(self.pages.restore(seq, parked)) * self._blocks.block_bytes

    def drop(self, parked: Parked) -> None:
        self.pages.drop(parked)
