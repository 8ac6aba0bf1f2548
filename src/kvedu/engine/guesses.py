"""What the engine keeps of a completion that is made with guesses, and of the proposer that makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Hashable

from kvedu.engine.curve import Curve
from kvedu.speculative.draws import Draws
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.rounds import Round

FIRST = 0.7
"""Share of guesses that is expected to be kept before anything was seen."""
MEMORY = 0.95
"""What an older round counts for, beside the one after it."""
TRUST = 4.0
"""Guesses that what is expected counts for."""


class Acceptance:
    """Shares of guesses that were kept, by depth, of those whose predecessors were; older rounds count less.

    Where little was seen, ``before`` (all texts of this proposer) says what to expect.
    """

    def __init__(self, before: Acceptance | None = None) -> None:
        self._before = before
        self._reached: list[float] = []
        self._kept: list[float] = []

    def note(self, depth: int, accepted: int) -> None:
        """A round guessed ``depth`` deep, and ``accepted`` were kept."""
        while len(self._reached) < depth:
            self._reached.append(0.0)
            self._kept.append(0.0)
        for i in range(min(depth, accepted + 1)):
            self._reached[i] = MEMORY * self._reached[i] + 1
            self._kept[i] = MEMORY * self._kept[i] + (accepted > i)
        if self._before is not None:
            self._before.note(depth, accepted)

    def share(self, place: int) -> float:
        """Of guesses at this depth (1 is the first)."""
        expected = FIRST if self._before is None else self._before.share(place)
        if place > len(self._reached):
            return expected
        return (self._kept[place - 1] + TRUST * expected) / (self._reached[place - 1] + TRUST)


@dataclass(eq=False)
class Drafting:
    """A proposer at work: the blocks it reads, what it was worth, how many nodes and seconds its trees take by depth."""

    proposer: Proposer
    taps: tuple[int, ...]
    acceptance: Acceptance = field(default_factory=Acceptance)
    nodes: Curve = field(default_factory=Curve)
    seconds: Curve = field(default_factory=Curve)
    texts: int = 0
    """Completions that it guesses for now."""

    def __post_init__(self) -> None:
        self.nodes.note(0, 0)


@dataclass(eq=False, slots=True)
class Guesses:
    """One completion's: ``key`` names it to the proposer; its own random stream; what its rounds did."""

    drafting: Drafting
    key: Hashable
    draws: Draws
    acceptance: Acceptance
    rounds: list[Round] = field(default_factory=list)
    idle: int = 0
    """Rounds in a row in which it was not asked for a guess."""
    released: bool = False
    """Whether its completion has ended."""
