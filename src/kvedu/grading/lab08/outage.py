"""Lab 8, exercise 5: an outage that the dashboard does not show."""

from __future__ import annotations

import math
from typing import Any

from kvedu.engine.metrics import percentile
from kvedu.grading.exercise import Case, Exercise, Unfit, call

Seen = tuple["list[tuple[float, float]]", float]


def observe(answer: Any) -> Seen:
    """Rows as pairs of floats, and the time."""
    given = call(answer)
    try:
        rows, now = given
        if any(first is None for _, first in rows):
            raise Unfit("who has no first token yet gets a time after `now`, or math.inf, in its place: None cannot be compared")
        return [(float(arrived), float(first)) for arrived, first in rows], float(now)
    except (TypeError, ValueError):
        raise Unfit("a pair was wanted: a list of (arrived, first token) and a number, now") from None


def real_times(case: Case, seen: Seen) -> str | None:
    """Every first token after its arrival."""
    for arrived, first in seen[0]:
        if not (math.isfinite(arrived) and first > arrived):
            return f"a user arrived at {arrived:g} and has a first token at {first:g}; it comes after the arrival (math.inf for never)"
    return None


def enough_users(case: Case, seen: Seen) -> str | None:
    """Ten who have arrived."""
    come = sum(arrived <= seen[1] for arrived, _ in seen[0])
    return None if come >= 10 else f"by now = {seen[1]:g} only {come} users have arrived; at least ten were wanted"


def half_wait(case: Case, seen: Seen) -> str | None:
    """Half of them for more than ten seconds."""
    rows, now = seen
    come = [row for row in rows if row[0] <= now]
    stuck = sum(first > now and now - arrived > 10 for arrived, first in come)
    return None if 2 * stuck >= len(come) else f"{stuck} of {len(come)} users have been waiting for more than 10 s without a token; at least half were wanted"


def green(case: Case, seen: Seen) -> str | None:
    """The dashboard says less than half a second, and says something."""
    rows, now = seen
    served = [first - arrived for arrived, first in rows if first <= now]
    if not served:
        return "nobody has a first token yet, so the dashboard fails instead of showing green; let some be served"
    says = percentile(served, 99)
    return None if says < 0.5 else f"the dashboard says {says:.2f} s; it was to say less than 0.5: those who were served must have been served quickly"


EXERCISE = Exercise(
    title="The outage that nobody sees",
    read="book/08-latency-and-throughput",
    hint="Let some users be served at once, and the others not at all by now.",
    checked="your own rows: arrivals, waits, and what the dashboard says of them",
    cases=lambda fresh: [Case("outage()")],
    observe=observe,
    rules=(real_times, enough_users, half_wait, green),
)
