"""Who goes first: the line of those who wait, and who keeps running when blocks run out."""

from __future__ import annotations

from typing import Callable, Iterable, Iterator

from kvedu.engine.blocks import Blocks
from kvedu.engine.sequence import Sequence
from kvedu.errors import RequestError

Admission = Callable[[int], bool]
"""Whether newcomers are let in beside this many running sequences."""


def continuous(running: int) -> bool:
    """A free slot is filled at once (Yu et al. 2022, Orca)."""
    return True


def static(running: int) -> bool:
    """A new batch starts when the last sequence of the old one has ended. For comparison."""
    return running == 0


class FirstCome:
    """First come, first served: nobody who came later is let in before.

    A request waits for those ahead of it only, each of which ends after finitely many steps.
    """

    def rank(self, sequence: Sequence) -> object:
        """Sort key, smallest first; it never changes. The running sequence that ranks last is preempted first."""
        return sequence.arrival, sequence.id, sequence.copy

    def line(self, waiting: Iterable[Sequence], blocks: Blocks) -> Iterator[Sequence]:
        """Those who wait, given by rank, as they are let in; asked for one more only when the last one was."""
        return iter(list(waiting))


class ByPriority(FirstCome):
    """Smallest priority number first; within one, first come. A request waits as long as more urgent ones keep coming."""

    def rank(self, sequence: Sequence) -> object:
        return sequence.priority, super().rank(sequence)


class LongestPrefix(FirstCome):
    """Of those who wait, the one first that finds most of its tokens in the cache, as SGLang does (Zheng et al. 2024).

    Requests with a common beginning then run while it is remembered. Bound against starvation: a
    request is overtaken by at most ``patience`` requests that came later; from then on nobody who came later is let in
    before it. Only the ``look`` longest waiting are compared, which bounds the cost of a step: O(their tokens).
    Who is preempted goes by arrival.
    """

    def __init__(self, patience: int = 16, look: int = 128) -> None:
        if patience < 0 or look < 1:
            raise RequestError(f"patience is 0 or more and look 1 or more; got {patience} and {look}")
        self.patience, self.look = patience, look

    def line(self, waiting: Iterable[Sequence], blocks: Blocks) -> Iterator[Sequence]:
        by_arrival = list(waiting)
        left, later = by_arrival[: self.look], by_arrival[self.look :]
        found = {s: s.computed or blocks.matched(s.ids, s.salt) for s in left}
        while left:
            overdue = (s for s in left if s.overtaken >= self.patience)
            chosen = next(overdue, None) or max(left, key=found.__getitem__)
            yield chosen
            for sequence in left[: left.index(chosen)]:  # it was let in: these came earlier and still wait
                sequence.overtaken += 1
            left.remove(chosen)
        yield from later


Order = FirstCome
"""Any of these, or a subclass of one."""

first_come = FirstCome()
by_priority = ByPriority()
