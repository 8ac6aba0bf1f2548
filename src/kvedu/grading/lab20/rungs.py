"""Lab 20, exercise 2: which recording serves which step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

Chosen = "tuple[list[int | None], float]"


def cases(fresh: Fresh) -> list[Case]:
    """Ladders in and out of order, steps on, between and above their rungs."""
    ladder = (1, 2, 4, 8, 16, 32)
    shuffled = fresh.shuffled(list(ladder))
    return [
        Case("steps on and between the rungs", (ladder, [1, 3, 8, 9, 16, fresh.integer(17, 31)])),
        Case("steps that no recording is large enough for", (ladder, [fresh.integer(33, 60), 5, 32, 33])),
        Case("a ladder that is not in order", (tuple(shuffled), [fresh.integer(3, 7), fresh.integer(9, 15), 31])),
        Case("only steps that are too large", ((1, 2), [3, 4])),
        Case("one rung", ((24,), [fresh.integer(1, 23), 24, 25])),
    ]


def answer(choose: Callable[[Sequence[int], int], int | None], *, of_all: bool = False) -> Callable[[Sequence[int], Sequence[int]], Chosen]:
    """Rungs by a rule, and the share of rows that are for nobody."""

    def rungs(ladder: Sequence[int], running: Sequence[int]) -> Chosen:
        taken = [choose(ladder, n) for n in running]
        pairs = [(rung, n) for rung, n in zip(taken, running) if rung is not None]
        rows = sum(rung for rung, _ in pairs)
        idle = sum(rung - n for rung, n in pairs)
        whole = sum(n for _, n in pairs) if of_all else rows
        return taken, idle / whole if whole else 0.0

    return rungs


def next_up(ladder: Sequence[int], n: int) -> int | None:
    """The smallest that is large enough."""
    return min((size for size in ladder if size >= n), default=None)


EXERCISE = Exercise(
    title="The ladder",
    read="book/20-graphs-and-launch-overhead",
    hint="A recording of n rows serves n sequences or fewer. The share is of the rows that are computed, those for nobody among them; plain steps have none.",
    checked="steps on, between and above the rungs, ladders in any order",
    cases=cases,
    right=answer(next_up),
    parts=("the rungs", "the share of rows for nobody"),
    tolerance=1e-9,
    mistakes=(
        Mistake(answer(lambda ladder, n: min((size for size in ladder if size > n), default=None)), "a step that fits a rung exactly takes the next larger one"),
        Mistake(answer(lambda ladder, n: next((size for size in ladder if size >= n), None)), "the first rung that is large enough is taken, not the smallest; the ladder need not be in order"),
        Mistake(answer(lambda ladder, n: next_up(ladder, n) or max(ladder)), "a step is put into a recording that has no room for it; it must run plain: None"),
        Mistake(answer(next_up, of_all=True), "the share is of the rows that somebody needs; it is wanted of all rows that are computed"),
    ),
)
