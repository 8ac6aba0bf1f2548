"""Lab 3, exercise 4: a verdict on three attentions, with pairs on which the wrong ones are silently wrong."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise
from kvedu.grading.lab03._versions import WRONG, heads_read, is_pair


def names(case: Case, seen: Any) -> str | None:
    """One entry for each version."""
    return None if type(seen) is dict and set(seen) == {"a", "b", "c"} else "a dict with the keys a, b and c was wanted"


def pairs(case: Case, seen: dict[str, Any]) -> str | None:
    """None, or a pair whose heads divide."""
    bad = [name for name, pair in seen.items() if pair is not None and not is_pair(pair)]
    return f"{bad[0]}: a pair (H, K) was wanted, two whole numbers of which K divides H" if bad else None


def none_missed(case: Case, seen: dict[str, Any]) -> str | None:
    """No wrong version is called right."""
    missed = [name for name in WRONG if seen[name] is None]
    return f"{', '.join(missed)} passed your judgment and is wrong; try H = 12 with K = 4" if missed else None


def silently_wrong(case: Case, seen: dict[str, Any]) -> str | None:
    """Each pair shows a wrong result, not an exception."""
    for name, pair in seen.items():
        if pair is None:
            continue
        try:
            if heads_read(name, *pair) == heads_read("b", *pair):
                return f"{name} is right with {pair[0]} query heads and {pair[1]} KV heads; this pair shows nothing"
        except IndexError:
            return f"{name} with {pair[0]} and {pair[1]} heads raises an IndexError; find a pair on which it is wrong silently"
    return None


EXERCISE = Exercise(
    title="Two of three are wrong: pairs that show it",
    read="book/03-mha-mqa-gqa",
    hint="Let all values of KV head j be the number j; then the output of a query head names the head it has read.",
    checked="the verdict on each version, and that your pairs show a wrong result without an exception",
    cases=lambda fresh: [Case("shows()")],
    rules=(names, pairs, none_missed, silently_wrong),
)
