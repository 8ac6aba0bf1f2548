"""Lab 7, exercise 1: steps and wasted slots of static batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvedu.analysis.batching import static_steps
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """The source's four, a last batch that is not full, a single sequence, one slot, random lines."""
    lines = [([4, 2, 10, 3], 4), ([4, 2, 10, 3, 6, 1], 4), ([7], 3), ([5, 5, 5, 5, 5, 5], 3), ([3, 1, 4], 1)]
    for slots in (2, 5, 8):
        lines.append(([fresh.integer(1, 60) for _ in range(4 * slots + fresh.integer(1, slots - 1))], slots))
    return [Case(f"{len(lengths)} sequences, the longest {max(lengths)}, in {slots} slots", (lengths, slots)) for lengths, slots in lines]


def right(lengths: Sequence[int], slots: int) -> tuple[int, int]:
    """Steps, and places that yield no token."""
    steps = static_steps(lengths, slots)
    return steps, steps * slots - sum(lengths)


def by_batches(order: Callable[[Sequence[int]], Sequence[int]] = list, last: Callable[[Sequence[int]], int] = max) -> Any:
    """An answer that puts the line in another order, or lets a batch end by another of its lengths."""

    def answer(lengths: Sequence[int], slots: int) -> tuple[int, int]:
        line = order(lengths)
        steps = sum(last(line[i : i + slots]) for i in range(0, len(line), slots))
        return steps, steps * slots - sum(lengths)

    return answer


def only_members(lengths: Sequence[int], slots: int) -> tuple[int, int]:
    """Waste of those in the batch; slots that nobody sat in are forgotten."""
    batches = [lengths[i : i + slots] for i in range(0, len(lengths), slots)]
    return sum(map(max, batches)), sum(max(batch) - n for batch in batches for n in batch)


def one_batch(lengths: Sequence[int], slots: int) -> tuple[int, int]:
    """As if the whole line were one batch."""
    return max(lengths), max(lengths) * slots - sum(lengths)


EXERCISE = Exercise(
    title="What static batches waste",
    read="book/07-continuous-batching",
    hint="Cut the line into batches of `slots`, in its order. Steps of a batch? Places are steps times slots; each token takes one.",
    checked="steps and wasted slots of lines in their own order, with a last batch that is not full",
    cases=cases,
    right=right,
    parts=("steps", "wasted slots"),
    mistakes=(
        Mistake(only_members, "a last batch that is not full leaves whole slots empty; they are wasted too"),
        Mistake(one_batch, "the line is cut into batches of `slots`; here it is taken for a single one"),
        Mistake(by_batches(order=sorted), "the lengths are sorted first; a server does not know them, it takes people as they stand in line"),
        Mistake(by_batches(last=lambda batch: sum(batch) // len(batch)), "a batch lasts as long as its longest, not as its mean"),
        Mistake(lambda lengths, slots: right(lengths, slots)[::-1], "steps come first, then wasted slots"),
    ),
)
