"""Lab 3, exercise 4: pairs on which a wrong attention is right by luck."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise
from kvedu.grading.lab03._versions import WRONG, heads_read, is_pair


def names(case: Case, seen: Any) -> str | None:
    """One entry for each wrong version."""
    if type(seen) is dict and set(seen) == set(WRONG):
        return None
    return "a dict was wanted with one key for each of the two wrong versions; a version that is right has nothing to hide"


def pairs(case: Case, seen: dict[str, Any]) -> str | None:
    """None, or a GQA pair whose heads divide."""
    for name, pair in seen.items():
        if pair is not None and not is_pair(pair):
            return f"{name}: a pair (H, K) was wanted, two whole numbers of which K divides H"
        if pair is not None and not 1 < pair[1] < pair[0]:
            return f"{name}: {pair} is MHA or MQA; wanted is a pair with 1 < K < H"
    return None


def _right(name: str, H: int, K: int) -> bool:
    try:
        return heads_read(name, H, K) == heads_read("b", H, K)
    except IndexError:
        return False


def right_by_luck(case: Case, seen: dict[str, Any]) -> str | None:
    """Each pair hides the bug."""
    for name, pair in seen.items():
        if pair is not None and not _right(name, *pair):
            return f"{name} is wrong with {pair[0]} query heads and {pair[1]} KV heads; that does not hide it"
    return None


def none_overlooked(case: Case, seen: dict[str, Any]) -> str | None:
    """None is given only where there is no pair."""
    for name, pair in seen.items():
        if pair is None and any(_right(name, H, K) for K in range(2, 7) for H in range(2 * K, 37, K)):
            return f"{name} is right on some pair with 1 < K < H; look again"
    return None


EXERCISE = Exercise(
    title="Two of three are wrong: pairs that hide it",
    read="book/03-mha-mqa-gqa",
    hint="Which KV head does query head h read in each version: h // G, h // K, h % K? When are two of these equal for every h?",
    checked="that each pair hides its bug, and that None stands only where nothing does",
    cases=lambda fresh: [Case("hides()")],
    rules=(names, pairs, right_by_luck, none_overlooked),
)
