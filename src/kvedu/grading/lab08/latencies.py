"""Lab 8, exercise 1: what one user felt, from the events of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvedu.engine.trace import Admitted, Arrived, Stepped, Trace
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab08._runs import run

Times = Callable[[Trace, int], "list[float]"]


def cases(fresh: Fresh) -> list[Case]:
    """A run with a slot for everybody, one with a line, one so short of blocks that requests are sent back; and one token only."""
    free, line, short = run(fresh, 3), run(fresh, 6, slots=2), run(fresh, 5, n_blocks=12)
    found = [Case(f"request {i} of a run with free slots", (free, i)) for i in (0, 2)]
    found += [Case(f"request {i} of a run with two slots for six", (line, i)) for i in (3, 5)]
    found += [Case(f"request {i} of a run short of blocks", (short, i)) for i in range(5)]
    return [*found, Case("a request that has one token so far", (_one_token(run(fresh, 2)), 0))]


def _one_token(trace: Trace) -> Trace:
    """The events up to the first token of request 0."""
    for place, event in enumerate(trace.events):
        if isinstance(event, Stepped) and any(s.request == 0 and s.sampled for s in event.shares):
            return Trace(trace.events[: place + 1])
    raise AssertionError("request 0 has no token")


def sampled_ends(trace: Trace, request: int) -> list[float]:
    """Ends of the steps that sampled a token for it."""
    return [e.time for e in trace.of(Stepped) for s in e.shares if s.request == request and s.sampled]


def arrival(trace: Trace, request: int) -> float:
    """When it came."""
    return next(e.time for e in trace.of(Arrived) if e.request == request)


def measured(
    tokens: Times = sampled_ends,
    since: Callable[[Trace, int], float] = arrival,
    tpot: Callable[[Sequence[float], float], float] = lambda times, since: (times[-1] - times[0]) / (len(times) - 1),
):
    """An answer with its token times, its start or its time per token changed."""

    def answer(trace: Trace, request: int) -> tuple[float, float | None, float | None]:
        times, start = tokens(trace, request), since(trace, request)
        if len(times) < 2:
            return times[0] - start, None, None
        return times[0] - start, tpot(times, start), max(b - a for a, b in zip(times, times[1:]))

    return answer


EXERCISE = Exercise(
    title="What one user felt",
    read="book/08-latency-and-throughput",
    hint="Collect the ends of the steps that sampled a token for this request. Then there is one gap fewer than there are tokens.",
    checked="runs with free slots, with a line and with too few blocks, prompts in chunks, and a single token",
    cases=cases,
    right=measured(),
    parts=("TTFT", "TPOT", "longest gap"),
    tolerance=1e-9,
    mistakes=(
        Mistake(
            measured(since=lambda trace, request: next(e.time for e in trace.of(Admitted) if e.request == request)),
            "the watch starts when the request gets a slot; its user has waited since it arrived",
        ),
        Mistake(
            measured(tokens=lambda trace, request: [e.time for e in trace.of(Stepped) for s in e.shares if s.request == request]),
            "every share counts as a token; a share that computes a chunk of a prompt has sampled none",
        ),
        Mistake(
            measured(tokens=lambda trace, request: [e.start for e in trace.of(Stepped) for s in e.shares if s.request == request and s.sampled]),
            "tokens are dated to the start of their step; a token exists when the step has ended",
        ),
        Mistake(measured(tpot=lambda times, since: (times[-1] - times[0]) / len(times)), "TPOT is divided by the number of tokens; n tokens have n - 1 gaps"),
        Mistake(
            measured(tpot=lambda times, since: (times[-1] - since) / len(times)),
            "TPOT is the whole latency over the tokens, so that the wait for the first one is in it",
        ),
    ),
)  # fmt: skip
