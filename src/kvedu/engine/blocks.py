"""What the scheduler needs of a cache, and of host memory beside it: plain numbers."""

from __future__ import annotations

from typing import Hashable, Mapping, Protocol, Sequence as Seq

from kvedu.caches.host_pages import Parked


class HostSpace(Protocol):
    """Host memory for sequences that wait. ``SwapSpace`` is one; a simulation's copies nothing."""

    def out(self, seq: int) -> tuple[Parked, int] | None:
        """Close a sequence and keep what it holds: (a ticket, bytes copied); None where there is no room."""

    def needed(self, parked: Parked) -> int:
        """Of the blocks that can be had now, those that ``back`` takes."""

    def back(self, parked: Parked) -> tuple[int, int]:
        """Open it again: (its new id, bytes copied)."""

    def drop(self, parked: Parked) -> None:
        """Forget it."""


class Blocks(Protocol):
    """The cache. ``PagedCache`` is one; a simulation's has no tensors."""

    def add_prefix(self, tokens: Seq[int], salt: Hashable = None) -> tuple[int, int]:
        """Open a sequence on what is remembered of its tokens: (id, tokens reused)."""

    def matched(self, tokens: Seq[int], salt: Hashable = None) -> int:
        """Tokens that ``add_prefix`` would reuse."""

    def free(self, seq: int) -> None:
        """Close a sequence."""

    def remember(self, seq: int, tokens: Seq[int], salt: Hashable = None) -> None:
        """Offer its full blocks, which hold these tokens, for reuse."""

    def blocks_needed(self, growth: Mapping[int, int]) -> int:
        """Blocks that these numbers of new tokens would take."""

    def blocks_for(self, tokens: int) -> int:
        """Blocks of a sequence of this many tokens."""

    def swap_space(self, budget_bytes: int) -> HostSpace:
        """Host memory that its sequences can be copied out to."""

    @property
    def page_size(self) -> int:
        """Tokens of a block."""

    @property
    def available(self) -> int:
        """Blocks that can be taken now."""

    @property
    def n_blocks(self) -> int:
        """All blocks there are."""
