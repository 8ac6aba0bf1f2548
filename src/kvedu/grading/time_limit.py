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

    Limits may be nested. Outside the main thread, and where the system has no interval timers, there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(signum: int, frame: object) -> None:
        raise TimeUp

    limits = {signal.ITIMER_PROF: seconds, signal.ITIMER_REAL: seconds * CLOCK_TIMES}
    timers = {timer: signal.setitimer(timer, 0) for timer in limits}
    handlers = {number: signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)}
    try:
        for timer, limit in limits.items():
            signal.setitimer(timer, limit, AGAIN)
        yield
    finally:
        for timer in limits:
            signal.setitimer(timer, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for timer, (left, again) in timers.items():  # an outer limit goes on, with what it had left
            signal.setitimer(timer, left, again)
