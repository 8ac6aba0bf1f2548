"""A step before it is run: who takes part, who was let in and who was sent back; and what a trace says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvedu.engine.sequence import Sequence
from kvedu.engine.trace import Admitted, Preempted, Share
from kvedu.speculative.tree import EMPTY, TokenTree


class Work:
    """One sequence's share of a step: its next ``tokens`` pending tokens, after ``context`` computed ones.

    ``yields``: whether the step ends with a token sampled for it. ``tree``: guesses that are verified below its last token.
    """

    __slots__ = ("sequence", "tokens", "context", "yields", "tree")

    def __init__(self, sequence: Sequence, tokens: int) -> None:
        self.sequence, self.tokens, self.context = sequence, tokens, sequence.computed
        self.yields = tokens == sequence.pending
        self.tree: TokenTree = EMPTY

    @property
    def rows(self) -> int:
        """Rows that it brings to the pass: its tokens and its guesses."""
        return self.tokens + len(self.tree)

    @property
    def share(self) -> Share:
        """As a trace records it."""
        return Share(self.sequence.id, self.sequence.copy, self.tokens, self.context, self.yields)


class SentBack(NamedTuple):
    """A preempted sequence: tokens it had computed, bytes copied to host memory (None: all is computed again)."""

    sequence: Sequence
    computed: int
    swapped_bytes: int | None


class LetIn(NamedTuple):
    """A newcomer or a returner: tokens found in the cache, bytes copied from host memory (None: none were there)."""

    sequence: Sequence
    reused: int
    swapped_bytes: int | None


@dataclass(frozen=True)
class Plan:
    """One step. ``work`` in the order of the ragged tensors."""

    work: tuple[Work, ...]
    preempted: tuple[SentBack, ...] = ()
    admitted: tuple[LetIn, ...] = ()

    @property
    def shares(self) -> tuple[Share, ...]:
        """The work as a trace records it."""
        return tuple([work.share for work in self.work])

    @property
    def swapped_bytes(self) -> int:
        """Bytes copied between the cache and host memory, both ways."""
        return sum(change.swapped_bytes or 0 for change in (*self.preempted, *self.admitted))

    def events(self, time: float) -> list[Preempted | Admitted]:
        """Who was sent back, then who was let in, as a trace records it."""
        back = [Preempted(time, s.id, s.copy, computed, moved) for s, computed, moved in self.preempted]
        return back + [
            Admitted(time, s.id, s.copy, reused, s.preemptions > 0, moved) for s, reused, moved in self.admitted
        ]
