"""Lab 7, exercise 2: static over continuous, from the distribution of lengths alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from kvedu.analysis.batching import mean_longest, static_over_continuous
from kvedu.grading.exercise import Case, Exercise, Mistake, call
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """All alike, one slot, uniform, few long ones, random ones with ties."""
    lines = [([6] * 5, 8), ([4, 2, 10, 3], 1), ([4, 2, 10, 3], 4), (list(range(1, 101)), 32), ([1] * 19 + [200], 16)]
    lines += [([fresh.integer(1, 30) for _ in range(fresh.integer(10, 40))], slots) for slots in (2, 7, 64)]
    return [Case(f"{len(lengths)} lengths from {min(lengths)} to {max(lengths)}, {slots} slots", (lengths, slots)) for lengths, slots in lines]


def observe(answer: Any, lengths: list[int], slots: int) -> Any:
    """The ratio as a float, an int taken for one."""
    given = call(answer, lengths, slots)
    return float(given) if type(given) is int else given


def no_repeats(lengths: Sequence[int], slots: int) -> float:
    """Draws without putting back: the batch can hold each length once. More draws than lengths see all."""
    ordered, n = sorted(lengths), len(lengths)
    longest, missed = 0.0, 1.0  # missed: chance that all larger ones are left out
    for i, x in enumerate(reversed(ordered)):
        left = n - i
        chance = min(1.0, slots / left)
        longest += missed * chance * x
        missed *= 1 - chance
    return longest * n / sum(lengths)


EXERCISE = Exercise(
    title="The factor, from lengths alone",
    read="book/07-continuous-batching",
    hint="Sort. The chance that all draws are among the i smallest of n is (i/n)**slots. With which chance is the longest number i exactly?",
    checked="exact values for equal, uniform, unequal and random lengths, for 1 to 64 slots",
    cases=cases,
    observe=observe,
    right=static_over_continuous,
    tolerance=1e-6,
    mistakes=(
        Mistake(lambda lengths, slots: max(lengths) * len(lengths) / sum(lengths), "that is the longest of *all* lengths; a batch of few seldom holds it"),
        Mistake(lambda lengths, slots: 1 / static_over_continuous(lengths, slots), "that is the share of slots used, the inverse of what is asked"),
        Mistake(lambda lengths, slots: mean_longest(lengths, slots) / statistics.median(lengths), "it is divided by the median; a slot that is refilled takes the *mean* length"),
        Mistake(mean_longest, "that is how long a batch lasts; divide it by the steps that the same tokens take without waste"),
        Mistake(no_repeats, "a length is drawn only once here; the draws are independent, as new people are"),
        Mistake(lambda lengths, slots: static_over_continuous(lengths, slots + 1), "that is the value for one slot more"),
    ),
)
