"""The engine's scheduler on a virtual clock: no tensors, no model, and step times from a formula.

What is simulated is the time of a step, and nothing else: plans, blocks, reuse and preemption are
those of the real engine, made by the same code.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush
from typing import Any, Callable, Sequence as Seq

from kvedu.caches.blocks import Reuse
from kvedu.engine.plan import Plan
from kvedu.engine.planned_blocks import PlannedBlocks
from kvedu.engine.scheduler import Scheduler
from kvedu.engine.sequence import Sequence
from kvedu.engine.step_time import StepSeconds, blocks_beside_weights, roofline_seconds
from kvedu.engine.trace import Arrived, Ended, Stepped, Trace
from kvedu.engine.workload import Arrival
from kvedu.errors import KveduError, RequestError
from kvedu.model.request import Request
from kvedu.model.sampling import Sampling

__all__ = ["PlannedBlocks", "blocks_beside_weights", "roofline_seconds", "simulate"]


def simulate(
    arrivals: Seq[Arrival],
    step_seconds: StepSeconds,
    *,
    n_blocks: int,
    page_size: int = 16,
    reuse: Callable[[int], Reuse] | None = None,
    block_bytes: int | None = None,
    **settings: Any,
) -> Trace:
    """Serve a workload to its end; the trace, in virtual seconds from 0. Other settings are the ``Scheduler``'s.

    Request numbers are places in ``arrivals``. Every request runs to its ``max_new_tokens``; tokens are its
    ``reply_ids``, else made up, the same for the same prompt. ``block_bytes`` is wanted where ``preempt`` swaps.
    Raises ``RequestError`` when a request comes that could not run even alone, ``KveduError`` if steps take no
    time or nothing is let in. Cost: a few microseconds for each token.
    """
    blocks = PlannedBlocks(n_blocks, page_size, reuse(page_size) if reuse is not None else None, block_bytes)
    scheduler, trace, pool = Scheduler(blocks, **settings), Trace(), blocks.tables.pool
    followers: dict[int, list[int]] = defaultdict(list)
    for number, arrival in enumerate(arrivals):
        if arrival.after is not None:
            if not 0 <= arrival.after < number:
                raise KveduError(f"request {number} comes after request {arrival.after}, which must be an earlier one")
            followers[arrival.after].append(number)
    coming = [(arrival.time, number) for number, arrival in enumerate(arrivals) if arrival.after is None]
    heapify(coming)
    now, steps = 0.0, 0
    while coming or not scheduler.idle:
        if scheduler.idle:
            now = max(now, coming[0][0])
        _let_come(coming, now, arrivals, scheduler, trace)
        plan, start = scheduler.plan(), now
        took = step_seconds(plan)
        if not took > 0:
            raise KveduError(f"a step must take some time, or the clock stands still; step_seconds gave {took}")
        now += took
        trace.events += plan.events(start)
        shares = plan.shares
        blocks.grow({work.sequence.run.seq: work.tokens for work in plan.work})
        scheduler.computed(plan)
        ended = _sample(plan, scheduler)
        _let_come(coming, now, arrivals, scheduler, trace)
        trace.events.append(
            Stepped(now, start, steps, shares, len(scheduler.waiting), pool.in_use, pool.evictable, pool.free)
        )
        steps += 1
        for run in ended:
            trace.events.append(Ended(now, run.prompt, 0, run.finished, run.sampled))
            for number in followers[run.prompt]:
                heappush(coming, (now + arrivals[number].time, number))
    return trace


class _Reply:
    """The part of a ``Run`` that the scheduler looks at, with tokens that were known before."""

    __slots__ = ("request", "prompt", "copy", "seq", "ids", "finished", "prompt_logprobs", "reply_ids", "prompt_tokens")

    def __init__(self, number: int, arrival: Arrival) -> None:
        self.request = Request(tuple(arrival.prompt_ids), arrival.max_new_tokens, Sampling())
        self.prompt, self.copy, self.ids, self.reply_ids = number, 0, list(arrival.prompt_ids), arrival.reply_ids
        self.seq = self.finished = self.prompt_logprobs = None
        self.prompt_tokens = len(self.ids)

    @property
    def sampled(self) -> int:
        return len(self.ids) - self.prompt_tokens

    def take(self) -> None:
        """One more token: the next of the reply, else its number."""
        n = len(self.ids) - self.prompt_tokens
        self.ids.append(self.reply_ids[n] if n < len(self.reply_ids) else n)
        if n + 1 >= self.request.max_new_tokens:
            self.finished = "length"


def _let_come(
    coming: list[tuple[float, int]], now: float, arrivals: Seq[Arrival], scheduler: Scheduler, trace: Trace
) -> None:
    """Give the scheduler what has arrived by now; it never sees the future."""
    while coming and coming[0][0] <= now:
        time, number = heappop(coming)
        arrival = arrivals[number]
        scheduler.add(Sequence(_Reply(number, arrival), time, arrival.priority, arrival.salt))
        trace.events.append(Arrived(time, number, len(arrival.prompt_ids), arrival.max_new_tokens))


def _sample(plan: Plan, scheduler: Scheduler) -> list[_Reply]:
    """Give a token to everyone who is due one; those that it ended."""
    ended = []
    for work in plan.work:
        if work.yields:
            run = work.sequence.run
            run.take()
            if run.finished:
                scheduler.finish(work.sequence)
                ended.append(run)
    return ended
