"""What speculation did in a run: pure functions of its trace."""

from __future__ import annotations

from dataclasses import dataclass

from kvedu.engine.trace import Trace, Verified


@dataclass(frozen=True)
class Guessing:
    """Rounds of speculation, added up. A round is one verification for one completion; those in which it did not
    guess are among them. Rates of nothing are NaN."""

    rounds: int
    guessed: int
    """Tokens that were verified."""
    accepted: int
    """Of these, kept by the verdict."""
    emitted: int
    """Tokens that the rounds added to the texts, the target's own among them."""
    by_depth: tuple[float, ...]
    """Share kept at each depth, of the rounds that guessed so deep and kept all before it."""

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens of a round; 1 is plain decoding."""
        return self.emitted / self.rounds if self.rounds else float("nan")

    @property
    def acceptance_rate(self) -> float:
        """Kept over verified tokens. In a tree most are siblings that could not all be kept."""
        return self.accepted / self.guessed if self.guessed else float("nan")


def guessing(trace: Trace, request: int | None = None) -> Guessing:
    """Of a whole run, or of one request (all its completions). Cost: O(rounds x depth)."""
    rounds = [event for event in trace.of(Verified) if request in (None, event.request)]
    shares = []
    for place in range(1, max((r.depth for r in rounds), default=0) + 1):
        reached = [r for r in rounds if r.depth >= place and r.accepted >= place - 1]
        if not reached:
            break
        shares.append(sum(r.accepted >= place for r in reached) / len(reached))
    totals = (sum(getattr(r, name) for r in rounds) for name in ("guessed", "accepted", "emitted"))
    return Guessing(len(rounds), *totals, tuple(shares))
