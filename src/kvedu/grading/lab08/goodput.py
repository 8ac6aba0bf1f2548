"""Lab 8, exercise 2: requests per second that were served within both limits."""

from __future__ import annotations

from collections.abc import Callable

from kvedu.engine.metrics import Timing
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

LIMITS = (0.5, 0.125)
"""Seconds, and exact in binary, so that a value can equal its limit."""


def timing(number: int, ttft: float, tpot: float | None, reason: str = "length") -> Timing:
    """A completion that arrived at 0 with these latencies; without a TPOT it has one token."""
    times = (ttft,) if tpot is None else tuple(ttft + tpot * i for i in range(5))
    return Timing(number, 0, 0.0, 0.0, times, times[-1], reason)


def cases(fresh: Fresh) -> list[Case]:
    """Each way to meet or to miss the limits alone, and all of them mixed."""
    kinds = {
        "meets both": (0.25, 0.0625, "length"),
        "misses TTFT": (0.75, 0.0625, "stop"),
        "misses TPOT": (0.25, 0.25, "length"),
        "misses both": (1.0, 0.25, "length"),
        "equals both limits": (*LIMITS, "stop"),
        "one token in time": (0.25, None, "stop"),
        "one token too late": (0.75, None, "stop"),
        "fast, but aborted": (0.25, 0.0625, "abort"),
    }
    found = [Case(f"two requests of a kind: {name}", ([timing(0, *kind), timing(1, *kind)], 4.0, *LIMITS)) for name, kind in kinds.items()]
    for _ in range(2):
        counts = {name: fresh.integer(1, 4) for name in kinds}
        mixed = fresh.shuffled([kinds[name] for name, count in counts.items() for _ in range(count)])
        found.append(Case(f"a mix of {len(mixed)}", ([timing(i, *kind) for i, kind in enumerate(mixed)], float(fresh.integer(3, 20)), *LIMITS)))
    return found


def rate(met: Callable[[Timing, float, float], bool], over: Callable[[list[Timing], float], float] = lambda times, span: span):
    """An answer with what counts as met, or what it is divided by, changed."""

    def answer(times: list[Timing], span: float, ttft_limit: float, tpot_limit: float) -> float:
        return sum(met(t, ttft_limit, tpot_limit) for t in times) / over(times, span)

    return answer


def both(t: Timing, ttft: float, tpot: float) -> bool:
    """Complete and within both limits."""
    return t.complete and (t.ttft_seconds or 0.0) <= ttft and (t.tpot_seconds or 0.0) <= tpot


EXERCISE = Exercise(
    title="Goodput",
    read="book/08-latency-and-throughput",
    hint="Count the requests that are complete and whose TTFT and TPOT are both within their limits; divide by the seconds of the run.",
    checked="every way to meet or miss a limit, values that equal it, single tokens, aborted requests, and mixes",
    cases=cases,
    right=rate(both),
    tolerance=1e-9,
    mistakes=(
        Mistake(rate(both, over=lambda times, span: len(times)), "it is a share of the requests, not a rate: divide by seconds"),
        Mistake(rate(lambda t, a, b: t.complete and ((t.ttft_seconds or 0.0) <= a or (t.tpot_seconds or 0.0) <= b)), "one limit met is enough for it; both must be"),
        Mistake(rate(lambda t, a, b: t.complete and (t.ttft_seconds or 0.0) <= a), "only TTFT is looked at; a fast start and a slow rest miss the SLO too"),
        Mistake(
            rate(lambda t, a, b: (t.ttft_seconds or 0.0) <= a and (t.tpot_seconds or 0.0) <= b),
            "aborted requests count as served",
        ),
        Mistake(
            rate(lambda t, a, b: t.complete and (t.ttft_seconds or 0.0) <= a and t.tpot_seconds is not None and t.tpot_seconds <= b),
            "answers of one token are left out; they have no TPOT that could miss the limit",
        ),
        Mistake(
            rate(lambda t, a, b: t.complete and (t.ttft_seconds or 0.0) < a and (t.tpot_seconds or 0.0) < b),
            "a value that equals its limit is counted as a miss",
        ),
        Mistake(rate(lambda t, a, b: t.complete), "every complete request counts; that is throughput, the late ones must not count"),
    ),
)  # fmt: skip
