"""Stop code that does not end: a limit in CPU seconds, and a longer one on the clock for code that sleeps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

CLOCK_TIMES = 6
"""The clock's limit, in units of the CPU limit: a busy machine must not fail an answer."""
AGAIN = 0.05
"""Seconds after which the alarm rings again, for code that swallows it."""


class TimeUp(BaseException):
    """The time is over. Not an ``Exception``, so that a learner's ``except Exception`` lets it through."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TimeUp`` in this block after ``seconds`` of CPU time, or six times that on the clock.

    Outside the main thread, and where the system has no interval timers, there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(signum: int, frame: object) -> None:
        raise TimeUp

    before = {number: signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)}
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN)
        signal.setitimer(signal.ITIMER_REAL, seconds * CLOCK_TIMES, AGAIN)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
