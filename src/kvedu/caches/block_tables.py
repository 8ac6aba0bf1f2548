"""Which blocks each sequence's tokens lie in: the block tables, with sharing and copy on write.

Plain integers only. The scheduler and the simulator plan with it, and ``PagedCache`` puts tensors
under it. Token t of a sequence lies in entry ``t // block_size`` of its table, at offset
``t % block_size``; an entry is made exactly when its first token comes.
"""

from __future__ import annotations

from collections import Counter
from typing import Mapping, Sequence

from kvedu.caches.blocks import BlockPool
from kvedu.errors import CacheFull


class BlockTables:
    """Block tables of open sequences over one pool.

    The caller says how long sequences are; the tables see to it that the blocks are there.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.tables: dict[int, list[int]] = {}

    def open(self, seq: int, source: int | None = None) -> None:
        """A new sequence: empty, or sharing every block of ``source``."""
        table = [] if source is None else list(self.tables[source])
        for block in table:
            self.pool.share(block)
        self.tables[seq] = table

    def open_prefix(self, seq: int, tokens: Sequence[int], salt: object = None) -> int:
        """A new sequence that starts with the remembered blocks of ``tokens``; returns how many tokens that is.

        Whole blocks only, and never all of the tokens: the last one must be computed, or there are
        no logits to choose the next token from.
        """
        size, reuse = self.pool.block_size, self.pool.reuse
        blocks = reuse.match(tokens, salt)[: (len(tokens) - 1) // size] if reuse is not None else []
        for block in blocks:
            self.pool.share(block)
        self.tables[seq] = list(blocks)
        return len(blocks) * size

    def matched(self, tokens: Sequence[int], salt: object = None) -> int:
        """Tokens that ``open_prefix`` would find remembered; looking is no use."""
        size, reuse = self.pool.block_size, self.pool.reuse
        return 0 if reuse is None else min(reuse.peek(tokens, salt), (len(tokens) - 1) // size) * size

    def close(self, seq: int) -> None:
        """Give back all blocks, the last first: a prefix is then forgotten from its tail."""
        for block in reversed(self.tables.pop(seq)):
            self.pool.release(block)

    def shrink(self, seq: int, length: int) -> None:
        """Give back the blocks that hold none of the first ``length`` tokens."""
        table, needed = self.tables[seq], self.blocks_for(length)
        while len(table) > needed:
            self.pool.release(table.pop())

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-tokens // self.pool.block_size)

    def needed(self, growth: Mapping[int, tuple[int, int]]) -> int:
        """Blocks that a step would take: new ones, and copies of shared ones that it would write to.

        ``growth`` maps sequences to (tokens now, new tokens).
        """
        new, writers, size, references = 0, Counter(), self.pool.block_size, self.pool.references
        for seq, (start, count) in growth.items():
            table, tail = self.tables[seq], start // size  # a write at ``start`` goes to this entry first
            new += -(-(start + count) // size) - len(table)
            if tail < len(table) and references[table[tail]] > 1:
                writers[table[tail]] += 1
        # The last of a block's users may write to it in place.
        return new + sum(min(n, references[block] - 1) for block, n in writers.items())

    def _tail(self, seq: int, start: int) -> list[int]:
        """The partly filled block that a write at ``start`` goes to first; none where a new block is begun."""
        index = start // self.pool.block_size
        return self.tables[seq][index : index + 1]

    def reserve(self, growth: Mapping[int, tuple[int, int]]) -> list[tuple[int, int]]:
        """Make room for a step, all or nothing; returns block copies (from, to) to be made before writing.

        A block that others refer to too is replaced by a copy; one that a reuse policy
        remembers is forgotten, since its content changes. Raises ``CacheFull``.
        """
        needed = self.needed(growth)
        if needed > self.pool.available:
            raise CacheFull(
                f"the step needs {needed} more blocks of {self.pool.block_size} tokens; {self.pool.available} of "
                f"{self.pool.n_blocks} can be had. Free or preempt a sequence first"
            )
        copies = []
        for seq, (start, count) in growth.items():
            table = self.tables[seq]
            for block in self._tail(seq, start):
                if self.pool.references[block] > 1:
                    own = table[start // self.pool.block_size] = self.pool.take()
                    copies.append((block, own))
                    self.pool.release(block)
                    continue
                self.pool.versions[block] += 1
                if self.pool.reuse is not None and self.pool.reuse.holds(block):
                    self.pool.forget(block)
            while len(table) < self.blocks_for(start + count):
                table.append(self.pool.take())
        return copies

    def remember(self, seq: int, tokens: Sequence[int], salt: object = None) -> None:
        """Offer the sequence's full blocks for reuse; ``tokens`` are those they hold, verified ones only."""
        size, reuse = self.pool.block_size, self.pool.reuse
        full = len(tokens) // size
        if full and reuse is not None and not reuse.holds(self.tables[seq][full - 1]):  # else all of it is known
            reuse.remember(tokens[: full * size], self.tables[seq][:full], salt)

    def slots(self, seq: int, start: int, stop: int) -> list[int]:
        """Slot mapping: for tokens ``start .. stop - 1`` the place ``block * block_size + offset`` in the pool."""
        size, table = self.pool.block_size, self.tables[seq]
        return [table[t // size] * size + t % size for t in range(start, stop)]
