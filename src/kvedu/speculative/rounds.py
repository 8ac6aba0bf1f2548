"""What a speculative run did, round by round, in counts."""

from __future__ import annotations

from dataclasses import dataclass

from kvedu.model.completion import Completion


@dataclass(frozen=True)
class Round:
    """One pass of the target. ``guessed``: nodes verified; ``depth``: of the deepest; ``accepted``: guesses kept;
    ``emitted``: tokens added to the text, the target's own one included (fewer where the text ended in the block)."""

    guessed: int
    depth: int
    accepted: int
    emitted: int


@dataclass(frozen=True)
class Speculated:
    """A completion and the rounds that made it; the prefill, which yields the first token, is none of them."""

    completion: Completion
    rounds: tuple[Round, ...]

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens that a pass of the target yields: 1 for plain decoding, NaN where there was no round."""
        return sum(r.emitted for r in self.rounds) / len(self.rounds) if self.rounds else float("nan")

    def acceptance(self, place: int) -> float:
        """Share of guesses at this depth (1 is the first) that were kept, of those whose predecessors were kept.

        NaN where there was none.
        """
        reached = [r for r in self.rounds if r.depth >= place and r.accepted >= place - 1]
        return sum(r.accepted >= place for r in reached) / len(reached) if reached else float("nan")
