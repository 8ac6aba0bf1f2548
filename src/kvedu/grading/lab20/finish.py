"""Lab 20, exercise 1: host and device side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

Finish = Callable[[Sequence[float], float], "tuple[float, float]"]


def cases(fresh: Fresh) -> list[Case]:
    """The host behind, the device behind, both by turns, one kernel, none."""

    def some(n: int, low: int, high: int) -> list[float]:
        return [fresh.integer(low, high) / 4 for _ in range(n)]

    return [
        Case("short kernels: the host is always behind", (some(6, 1, 10), 5.0)),
        Case("long kernels: the device is always behind", (some(6, 40, 90), 5.0)),
        Case("a long kernel, then short ones, then a long one", ([*some(2, 1, 8), 30.0, *some(9, 1, 4), 25.0, *some(2, 1, 8)], 4.0)),
        Case("one kernel", ([3.5], 2.0)),
        Case("no kernel", ([], 5.0)),
    ]


def finish(times: Sequence[float], launch: float) -> tuple[float, float]:
    """A kernel starts when it has been asked for and the one before is done."""
    now = 0.0
    for number, took in enumerate(times, 1):
        now = max(now, number * launch) + took
    return now, now - sum(times)


def asked_before(times: Sequence[float], launch: float) -> tuple[float, float]:
    """A kernel that starts while the host is still asking for it."""
    now = 0.0
    for number, took in enumerate(times):
        now = max(now, number * launch) + took
    return now, now - sum(times)


def from_totals(total: Callable[[float, float], float]) -> Finish:
    """A wrong answer from the two sums alone."""

    def answer(times: Sequence[float], launch: float) -> tuple[float, float]:
        end = total(len(times) * launch, float(sum(times)))
        return end, end - sum(times)

    return answer


EXERCISE = Exercise(
    title="Who waits for whom",
    read="book/20-graphs-and-launch-overhead",
    hint="Keep one number, the moment at which the device is free. The next kernel starts at the later of that moment and of the moment at which it has been asked for.",
    checked="short, long and mixed kernels, one and none",
    cases=cases,
    right=finish,
    parts=("the end", "the device's idle time"),
    tolerance=1e-9,
    mistakes=(
        Mistake(from_totals(lambda host, device: host + device), "the host's time and the device's are added; while a kernel runs, the host asks for the next"),
        Mistake(from_totals(max), "it is the larger of the two sums; the last kernel still has to run after it was asked for, and idle moments before a long kernel are not made up for"),
        Mistake(asked_before, "a kernel starts while the host is still asking for it: kernel number i (from 1) has been asked for at i times the launch"),
    ),
)
