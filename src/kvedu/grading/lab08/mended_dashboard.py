"""Lab 8, exercise 5: a percentile of TTFT that sees those who still wait."""

from __future__ import annotations

from collections.abc import Callable

from kvedu.engine.metrics import percentile
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

Rows = list["tuple[float, float]"]


def cases(fresh: Fresh) -> list[Case]:
    """All served, half stuck, some still to come, nobody there."""
    served = [(float(i), i + fresh.integer(100, 400) / 1000) for i in range(20)]
    stuck = [(20.0 + i, 200.0 + fresh.integer(1, 50)) for i in range(20)]
    later = [(100.0 + i, 101.0 + i) for i in range(20)]
    return [
        Case("all served", (served, 60.0)),
        Case("half of them stuck", (served + stuck, 60.0)),
        Case("half stuck, others still to come", (fresh.shuffled(served + stuck + later), 60.0)),
        Case("one, who waits", ([(5.0, 50.0)], 7.5)),
        Case("a first token that comes exactly now", ([(5.0, 7.5), (6.0, 6.25)], 7.5)),
        Case("nobody yet", (later, 60.0)),
        Case("no rows", ([], 60.0)),
    ]


def tail(waits: Callable[[Rows, float], list[float]]):
    """An answer with another list of waits; 0 for an empty one."""

    def answer(rows: Rows, now: float) -> float:
        found = waits(rows, now)
        return percentile(found, 99) if found else 0.0

    return answer


EXERCISE = Exercise(
    title="A dashboard that sees who waits",
    read="book/08-latency-and-throughput",
    hint="Take everybody who has arrived by now; the watch of each stops at the first token or now, whichever is earlier.",
    checked="all served, half stuck, arrivals and tokens still to come, nobody there",
    cases=cases,
    right=tail(lambda rows, now: [min(first, now) - arrived for arrived, first in rows if arrived <= now]),
    tolerance=1e-9,
    mistakes=(
        Mistake(
            tail(lambda rows, now: [first - arrived for arrived, first in rows if first <= now]),
            "it is the old dashboard: only those are counted whose first token is there",
        ),
        Mistake(
            tail(lambda rows, now: [first - arrived for arrived, first in rows if arrived <= now]),
            "it knows first tokens that have not come yet; at `now` only the wait so far is known",
        ),
        Mistake(
            tail(lambda rows, now: [min(first, now) - arrived for arrived, first in rows]),
            "users who come after `now` are counted, with a negative wait",
        ),
        Mistake(
            tail(lambda rows, now: [first - arrived if first <= now else 0.0 for arrived, first in rows if arrived <= now]),
            "who still waits is counted with a wait of 0",
        ),
        Mistake(
            tail(lambda rows, now: [now - arrived for arrived, first in rows if arrived <= now and first > now]),
            "only those who still wait are counted; the served ones belong to it too",
        ),
    ),
)
