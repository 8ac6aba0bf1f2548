"""Lab 13, exercise 5: the strategy that loses least among those that can be had."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

Row = dict[str, float | bool | str]
NAMES = ("as trained", "int8", "4 bit", "2 bit", "window", "offloaded", "MQA")


def cases(fresh: Fresh) -> list[Case]:
    """Fresh tables in which each of the conditions decides somewhere."""

    def table(bytes_: list[int], seconds: list[float], losses: list[float]) -> list[Row]:
        rows = [
            {"name": n, "bytes": b, "seconds": s, "loss": x, "retrains": n == "MQA"} for n, b, s, x in zip(NAMES, bytes_, seconds, losses)
        ]
        return fresh.shuffled(rows)

    size = fresh.integer(900, 1100)
    plain = [size, size // 2, size // 4, size // 8, size // 16, size // 32, size // 9]
    losses = [0.0, 0.001, 0.02, 0.3, 0.9, 0.005, 0.0]
    quick = [0.05, 0.04, 0.03, 0.025, 0.02, 0.5, 0.02]
    return [
        Case("all of them fit", (table(plain, quick, losses), size, 1.0)),
        Case("what loses nothing does not fit", (table(plain, quick, losses), size - 1, 1.0)),
        Case("what loses least is too slow", (table(plain, quick, losses), size // 4, 0.1)),
        Case("exactly the memory, exactly the time", (table(plain, quick, losses), size // 8, 0.025)),
        Case("only another model would do", (table(plain, [9.0] * 6 + [0.02], losses), size, 0.1)),
        Case("nothing fits", (table(plain, quick, losses), 3, 1.0)),
    ]


def _least(rows: list[Row], by: str) -> str | None:
    return min(rows, key=lambda row: row[by], default={"name": None})["name"]


def able(rows: list[Row], room: float, limit: float, *, retrained: bool = False, strictly: bool = False) -> list[Row]:
    """Rows that fit and are in time."""
    return [
        row
        for row in rows
        if (row["bytes"] < room if strictly else row["bytes"] <= room)
        and (row["seconds"] < limit if strictly else row["seconds"] <= limit)
        and (retrained or not row["retrains"])
    ]


def right(rows: list[Row], room: float, limit: float) -> str | None:
    """The right answer."""
    return _least(able(rows, room, limit), "loss")


EXERCISE = Exercise(
    title="Choose",
    read="book/13-choosing-a-strategy",
    hint="First throw out what does not fit, is too slow or would have to be trained. Then the least loss; `min(..., default=...)` copes with an empty list.",
    checked="tables in which memory, time and training each decide, limits that are met exactly, and one in which nothing is left",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda rows, room, limit: _least(able(rows, room, limit), "bytes"), "the smallest is taken; the one that loses least of those that fit is wanted"),
        Mistake(lambda rows, room, limit: _least(able(rows, room, limit, retrained=True), "loss"),
                "a strategy that needs another model is chosen; this model is trained already"),
        Mistake(lambda rows, room, limit: _least(able(rows, room, float("inf")), "loss"), "the limit on the time of a step is not looked at"),
        Mistake(lambda rows, room, limit: _least(able(rows, float("inf"), limit), "loss"), "the memory is not looked at"),
        Mistake(lambda rows, room, limit: _least(able(rows, room, limit, strictly=True), "loss"), "what takes exactly the memory or exactly the time still does"),
        Mistake(lambda rows, room, limit: _least(able(rows, room, limit), "loss") or "as trained", "where nothing is left the answer is None, not some strategy"),
    ),
)  # fmt: skip
