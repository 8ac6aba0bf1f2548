"""Lab 8, exercise 4: the smallest ceiling that meets an SLO, by measuring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh

Table = dict[int, "tuple[float, float]"]
LIMITS = (0.5, 0.03)


def cases(fresh: Fresh) -> list[Case]:
    """Tables of (TTFT, TPOT) by ceiling: the SLO is met in the middle, by several, at an edge, or by none."""
    low, good, high, bad = (3.0, 0.010), (0.3, 0.020), (0.2, 0.050), (0.9, 0.060)
    tables: dict[str, Table] = {
        "met in the middle only": {8: low, 16: low, 32: good, 64: high},
        "met by several": {8: low, 16: good, 32: good, 64: good},
        "met by the smallest": {4: good, 8: good, 16: high},
        "met by the largest": {8: low, 16: bad, 32: bad, 64: good},
        "met exactly": {8: low, 16: LIMITS, 32: good},
        "met by none": {8: low, 16: bad, 32: high},
        "no TTFT too long": {16: high, 32: high},
        "no TPOT too long": {16: low, 32: low},
    }
    orders = {name: fresh.shuffled(list(table)) for name, table in tables.items()}
    orders["met by several"] = [32, 8, 64, 16]  # the first, the largest and the smallest that meet it are three
    return [Case(name, (table, orders[name], *LIMITS)) for name, table in tables.items()]


def observe(answer: Any, table: Table, ceilings: list[int], ttft: float, tpot: float) -> dict[str, Any]:
    """The answer's choice, and the ceilings that it measured, in order."""
    if not callable(answer):
        raise Unfit(f"a function was wanted, {type(answer).__name__} came")
    measured: list[int] = []

    def measure(ceiling: int) -> tuple[float, float]:
        if ceiling not in table:
            raise Unfit(f"measure was asked for {ceiling!r}, which is not one of the ceilings")
        measured.append(ceiling)
        return table[ceiling]

    return {"chosen": answer(measure, ceilings, ttft, tpot), "measured": measured}


def no_more_than_needed(case: Case, seen: dict[str, Any]) -> str | None:
    """Nothing twice, and nothing above the smallest that meets both."""
    measured, chosen = seen["measured"], seen["chosen"]
    if len(set(measured)) < len(measured):
        return f"{case.name}: a ceiling is measured more than once ({measured}); keep what was measured"
    if chosen is not None and any(ceiling > chosen for ceiling in measured):
        return f"{case.name}: {measured} were measured to find {chosen}; from small to large, the first that meets both is the answer"
    return None


def search(
    meets: Callable[[float, float, float, float], bool] = lambda a, b, x, y: a <= x and b <= y,
    order: Callable[[list[int]], list[int]] = sorted,
    *,
    give_up: bool = False,
):
    """An answer with its test, its order or its end changed."""

    def answer(measure: Callable[[int], tuple[float, float]], ceilings: list[int], ttft: float, tpot: float) -> int | None:
        for ceiling in order(ceilings):
            found = measure(ceiling)
            if meets(*found, ttft, tpot):
                return ceiling
            if give_up:
                return None
        return None

    return answer


EXERCISE = Exercise(
    title="Tune an SLO",
    read="book/08-latency-and-throughput",
    hint="Go from the smallest ceiling upward, and return the first that meets both limits.",
    checked="limits met in the middle, by several, at either end, exactly, by none; and how many measurements it took",
    cases=cases,
    right=search(),
    observe=observe,
    compared=lambda seen: seen["chosen"],
    mistakes=(
        Mistake(search(order=lambda ceilings: sorted(ceilings, reverse=True)), "it is the largest that meets the SLO, not the smallest"),
        Mistake(search(order=list), "the ceilings are taken as they come; they are in no particular order"),
        Mistake(search(lambda a, b, x, y: a <= x), "only TTFT is looked at; a high ceiling brings first tokens in time and all others late"),
        Mistake(search(lambda a, b, x, y: b <= y), "only TPOT is looked at; a low ceiling has the best TPOT and an endless line"),
        Mistake(search(lambda a, b, x, y: a < x and b < y), "a value that equals its limit is counted as a miss"),
        Mistake(search(give_up=True), "it stops at the first ceiling that fails; a higher one may meet the SLO"),
    ),
    rules=(no_more_than_needed,),
)
