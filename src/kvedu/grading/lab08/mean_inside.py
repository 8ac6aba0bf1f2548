"""Lab 8, exercise 3: the mean number of requests in the system, over time."""

from __future__ import annotations

from collections.abc import Callable

from kvedu.engine.trace import Admitted, Arrived, Ended, Trace
from kvedu.errors import KveduError
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab08._runs import run

Moments = Callable[[Trace], "list[tuple[float, int]]"]


def cases(fresh: Fresh) -> list[Case]:
    """Runs with and without a line, from 0 and from later on; two whose recording stops while some are inside."""
    return [
        Case("three requests, a slot for each", (run(fresh, 3),)),
        Case("eight requests, two slots", (run(fresh, 8, slots=2),)),
        Case("six requests, of which the first comes after 2.5 s", (run(fresh, 6, first=2.5),)),
        Case("one request", (run(fresh, 1, first=1.25),)),
        Case("a recording that stops while some are still inside", (cut_off(fresh, slots=2),)),
        Case("another such recording, with a slot for each", (cut_off(fresh, slots=8),)),
    ]


def cut_off(fresh: Fresh, slots: int) -> Trace:
    """The events up to an end that leaves at least one request inside; raises ``KveduError`` where none does."""
    for _ in range(20):
        events = run(fresh, 8, slots=slots).events
        for place, event in enumerate(events):
            begun = Trace(list(events[: place + 1]))
            if isinstance(event, Ended) and len(begun.of(Arrived)) > len(begun.of(Ended)):
                return begun
    raise KveduError("no end among twenty runs left a request inside; let more requests come at a time")


def in_system(trace: Trace) -> list[tuple[float, int]]:
    """+1 at each arrival, -1 at each end."""
    return sorted([(e.time, 1) for e in trace.of(Arrived)] + [(e.time, -1) for e in trace.of(Ended)])


def in_slots(trace: Trace) -> list[tuple[float, int]]:
    """+1 at each first admission, -1 at each end."""
    return sorted([(e.time, 1) for e in trace.of(Admitted) if not e.again] + [(e.time, -1) for e in trace.of(Ended)])


def averaged(moments: Moments = in_system, *, by_time: bool = True, from_zero: bool = False):
    """An answer that counts something else, or takes another mean."""

    def answer(trace: Trace) -> float:
        found, inside, area, heads = moments(trace), 0, 0.0, []
        for (now, change), (later, _) in zip(found, found[1:]):
            inside += change
            heads.append(inside)
            area += inside * (later - now)
        if not by_time:
            return sum(heads) / len(heads)
        whole = in_system(trace)
        return area / (whole[-1][0] - (0.0 if from_zero else whole[0][0]))

    return answer


def added_latencies(trace: Trace) -> float:
    """The seconds of those that have ended, over the whole time."""
    came, whole = {e.request: e.time for e in trace.of(Arrived)}, in_system(trace)
    return sum(e.time - came[e.request] for e in trace.of(Ended)) / (whole[-1][0] - whole[0][0])


def busy_only(trace: Trace) -> float:
    """The largest number inside."""
    inside = most = 0
    for _, change in in_system(trace):
        inside += change
        most = max(most, inside)
    return float(most)


EXERCISE = Exercise(
    title="Little's law",
    read="book/08-latency-and-throughput",
    hint="Sort the moments, +1 for an arrival and −1 for an end; add up number times time until the next moment; divide by the whole time.",
    checked="runs with and without a line, that start at 0 or later, a single request, and recordings that stop before all have ended",
    cases=cases,
    right=averaged(),
    tolerance=1e-9,
    mistakes=(
        Mistake(averaged(by_time=False), "it is the mean over events; a number that stands for long must weigh more: multiply by the time that it stands"),
        Mistake(averaged(in_slots), "only those with a slot are counted; who waits for one is inside too"),
        Mistake(averaged(from_zero=True), "the clock runs from 0; the run begins with the first arrival"),
        Mistake(added_latencies, "latencies are added up; whoever is still inside when the recording stops has none yet, but was inside: count heads"),
        Mistake(busy_only, "it is the largest number, not the mean"),
    ),
)
