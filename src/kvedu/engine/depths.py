"""How far to guess in a step: as far as it pays for everybody together, by what was measured."""

from __future__ import annotations

from typing import Callable, NamedTuple, Protocol, Sequence as Seq

from kvedu.engine.curve import Curve
from kvedu.engine.guesses import Drafting, Guesses

FARTHEST = 16
"""Depth that is thought about for a proposer that does not say how deep its trees go."""


class Wish(NamedTuple):
    """A text that could guess, at most ``limit`` deep (1 or more)."""

    guesses: Guesses
    limit: int


class Bit(NamedTuple):
    """One step further down in one text: tokens to be gained, rows to be run, and what comes first."""

    worth: float
    gain: float
    rows: float
    text: int
    depth: int


class Depths(Protocol):
    """A policy. What it decides may depend on what was kept and how long it took, never on the tokens of a draw."""

    def choose(self, wishes: Seq[Wish], rows: int, tokens: int) -> list[int]:
        """Depth for each, 0 for none, in a step that has ``rows`` rows without them and yields ``tokens`` tokens."""

    def stepped(self, rows: int, seconds: float) -> None:
        """A step of so many rows, guesses included, took this long without the drafting."""


class Full:
    """Every text guesses as deep as its proposer goes, in every step."""

    def choose(self, wishes: Seq[Wish], rows: int, tokens: int) -> list[int]:
        return [wish.limit for wish in wishes]

    def stepped(self, rows: int, seconds: float) -> None:
        pass


class Measured:
    """Depths that yield the most tokens a second in this step, by acceptance and seconds as measured so far.

    A guess is worth its chance of being kept (its predecessors' included) and costs its rows in the pass, and its
    depth in the draft. The likeliest guesses of all texts are taken first, as long as tokens a second grow; where
    even the first makes them fall, nobody guesses: that is speculation switched off. A text that has not guessed for
    ``probe`` rounds tries one token again, since nothing else would tell that its text has changed.

    ``step`` gives seconds of a step by rows (relative ones will do); None learns them from the engine's own clock. Nobody
    then guesses in a step that has fewer rows than any before, nor in one of ``plain``: what a plain step takes must be
    known. And a step has at most twice as many rows as any before, and 8 more.
    Cost: O(texts x depth) and a sort.
    """

    def __init__(self, step: Callable[[int], float] | None = None, *, probe: int = 16, plain: int = 64) -> None:
        self._given, self._learned, self.probe, self.plain = step, Curve(), probe, plain
        self._steps = 0

    def stepped(self, rows: int, seconds: float) -> None:
        self._learned.note(rows, seconds)
        self._steps += 1

    def seconds(self, rows: int) -> float:
        """Of a step with so many rows."""
        return self._given(rows) if self._given else self._learned(rows, unknown=1.0)

    def choose(self, wishes: Seq[Wish], rows: int, tokens: int) -> list[int]:
        depths: list[int] = [0] * len(wishes)
        if self._given is None and (rows < self._learned.lowest or self._steps % self.plain == self.plain - 1):
            return depths
        deepest: dict[Drafting, int] = {}
        most = None if self._given else 2 * self._learned.highest + 8
        best, chosen, total = tokens / self.seconds(rows), list(depths), rows
        gained = float(tokens)
        bits = [bit for i, wish in enumerate(wishes) for bit in _bits(i, wish)]
        for bit in sorted(bits, key=lambda bit: (-bit.worth, bit.depth, bit.text)):
            if most is not None and total + bit.rows > most:
                break
            total, gained, depths[bit.text] = total + bit.rows, gained + bit.gain, bit.depth
            drafting = wishes[bit.text].guesses.drafting
            deepest[drafting] = max(deepest.get(drafting, 0), bit.depth)
            rate = gained / (self.seconds(round(total)) + sum(d.seconds(deep) for d, deep in deepest.items()))
            if rate > best:
                best, chosen = rate, list(depths)
        return [depth or self._retry(wish) for depth, wish in zip(chosen, wishes)]

    def _retry(self, wish: Wish) -> int:
        if wish.guesses.idle < self.probe:
            return 0
        return _farthest(wish) if wish.guesses.drafting.proposer.whole else 1


def _farthest(wish: Wish) -> int:
    return min(wish.limit, wish.guesses.drafting.proposer.deepest or FARTHEST)


def _bits(i: int, wish: Wish) -> list[Bit]:
    """Each step further down, never worth more than the one before; the whole tree at once where less is of no use."""
    drafting, chance, nodes, worth, bits = wish.guesses.drafting, 1.0, 0.0, float("inf"), []
    for depth in range(1, _farthest(wish) + 1):
        chance *= wish.guesses.acceptance.share(depth)
        before, nodes = nodes, max(nodes + 1, drafting.nodes(depth, unknown=depth))
        worth = min(worth, chance / (nodes - before))
        bits.append(Bit(worth, chance, nodes - before, i, depth))
    if drafting.proposer.whole:
        gain = sum(bit.gain for bit in bits)
        return [Bit(gain / nodes, gain, nodes, i, bits[-1].depth)]
    return bits
