"""A pool of block ids: a free list, reference counts, and nothing that knows of tensors.

A *block* is an id; the page of memory that it names belongs to whoever owns tensors.
Every block is in exactly one of three states: free (nobody uses it, its content means
nothing), in use (one or more sequences refer to it), or evictable (nobody refers to it, but a
reuse policy remembers what it holds, and may be asked to forget).
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, Sequence

from kvedu.errors import CacheError, CacheFull

Tokens = tuple[int, ...]


class Reuse(Protocol):
    """Who remembers finished blocks, and which one is forgotten first.

    A policy only ever remembers *full* blocks, each with its whole history: the tokens
    of its own and of all blocks before it, under one ``salt`` (an adapter, a tenant).
    """

    def match(self, tokens: Sequence[int], salt: object = None) -> list[int]:
        """Blocks that hold the longest remembered prefix of ``tokens``, in order. Counts as a use."""

    def peek(self, tokens: Sequence[int], salt: object = None) -> int:
        """How many blocks ``match`` would find; not a use."""

    def remember(self, tokens: Sequence[int], blocks: Sequence[int], salt: object = None) -> None:
        """These blocks hold exactly these tokens (a multiple of the block size)."""

    def holds(self, block: int) -> bool:
        """Whether the content of this block is remembered."""

    def forget(self, block: int) -> list[int]:
        """Its content is about to change. Returns all blocks no longer remembered: itself, perhaps others that need it."""

    def released(self, block: int) -> None:
        """Its last user let go: from now on it may be evicted."""

    def evict(self, in_use: Sequence[int]) -> int | None:
        """Forget the block that is least likely to be wanted and nobody uses (``in_use[block]`` is 0)."""


class BlockPool:
    """``n_blocks`` ids of blocks of ``block_size`` tokens. Taking and releasing are O(1) plus the policy's own cost."""

    def __init__(self, n_blocks: int, block_size: int, reuse: Reuse | None = None) -> None:
        if n_blocks < 1 or block_size < 1:
            raise CacheError(f"a pool needs blocks of tokens: got {n_blocks} blocks of {block_size}")
        self.n_blocks, self.block_size, self.reuse = n_blocks, block_size, reuse
        self._free = deque(range(n_blocks))
        self.references = [0] * n_blocks
        """How many sequences refer to each block."""
        self.versions = [0] * n_blocks
        """Grows whenever what a block holds is about to change; block and version together name a content."""
        self._evictable = 0

    @property
    def free(self) -> int:
        """Blocks whose content means nothing."""
        return len(self._free)

    @property
    def evictable(self) -> int:
        """Blocks that are remembered, but used by nobody."""
        return self._evictable

    @property
    def available(self) -> int:
        """Blocks that can be taken now."""
        return self.free + self.evictable

    @property
    def in_use(self) -> int:
        """Blocks that some sequence refers to, a shared one counted once."""
        return self.n_blocks - self.available

    def take(self) -> int:
        """A block of one's own. Evicts where no block is free; ``CacheFull`` where none can be evicted."""
        if self._free:
            block = self._free.popleft()
        else:
            block = self.reuse.evict(self.references) if self.evictable else None
            if block is None:
                raise CacheFull(f"all {self.n_blocks} blocks are in use")
            self._evictable -= 1
        self.references[block] = 1
        self.versions[block] += 1
        return block

    def share(self, block: int) -> None:
        """One more sequence refers to a block that is in use or evictable."""
        if self.references[block] == 0:
            if self.reuse is None or not self.reuse.holds(block):
                raise CacheError(f"block {block} is free; there is nothing in it to share")
            self._evictable -= 1
        self.references[block] += 1

    def release(self, block: int) -> None:
        """One sequence less refers to it; the last one leaves it evictable if it is remembered, else free."""
        if self.references[block] == 0:
            raise CacheError(f"block {block} was released more often than taken")
        self.references[block] -= 1
        if self.references[block] == 0:
            if self.reuse is not None and self.reuse.holds(block):
                self._evictable += 1
                self.reuse.released(block)
            else:
                self._free.append(block)

    def forget(self, block: int) -> None:
        """The content of a block in use is about to change: nobody may match it any more."""
        for lost in self.reuse.forget(block):
            if self.references[lost] == 0:
                self._evictable -= 1
                self._free.append(lost)
