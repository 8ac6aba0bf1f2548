"""The engine's scheduler on a virtual clock: no tensors, no model, and step times from a formula.

What is simulated is the time of a step, and nothing else: plans, blocks, reuse and preemption are
those of the real engine, made by the same code.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any, Callable, Hashable, Mapping, Sequence as Seq

from kvedu.analysis.flops import prefill_cost
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.roofline import Hardware, dtype_bytes, time_bound
from kvedu.analysis.weights import matrix_parameters, weight_bytes
from kvedu.caches.block_tables import BlockTables
from kvedu.caches.blocks import BlockPool, Reuse
from kvedu.config import ModelConfig
from kvedu.engine.scheduler import Plan, Scheduler
from kvedu.engine.sequence import Sequence
from kvedu.engine.trace import Admitted, Arrived, Ended, Preempted, Share, Stepped, Trace
from kvedu.engine.workload import Arrival
from kvedu.errors import CacheFull, KveduError
from kvedu.model.completion import Run
from kvedu.model.request import Request
from kvedu.model.sampling import Sampling
from kvedu.units import Cost

StepSeconds = Callable[[Plan], float]
"""Seconds that a step with at least one share takes; called before its tokens count as computed."""


class PlannedBlocks:
    """The scheduler's ``Blocks``, block tables and lengths only. Without forks, so no block is ever copied."""

    def __init__(self, n_blocks: int, page_size: int = 16, reuse: Reuse | None = None) -> None:
        self.tables = BlockTables(BlockPool(n_blocks, page_size, reuse))
        self.lengths: dict[int, int] = {}
        self._room: dict[int, int] = {}  # tokens that still fit into a sequence's last block
        self._offered: dict[int, int] = {}  # full blocks that were offered for reuse
        self._opened = 0

    def add_prefix(self, tokens: Seq[int], salt: Hashable = None) -> tuple[int, int]:
        seq, self._opened = self._opened, self._opened + 1
        reused = self.lengths[seq] = self.tables.open_prefix(seq, tokens, salt)
        self._room[seq] = self._offered[seq] = 0
        return seq, reused

    def free(self, seq: int) -> None:
        self.tables.close(seq)
        for record in (self.lengths, self._room, self._offered):
            del record[seq]

    def remember(self, seq: int, tokens: Seq[int], salt: Hashable = None) -> None:
        """Passed on only when one more block is full: a decode step changes that once per page."""
        full = len(tokens) // self.tables.pool.block_size
        if full > self._offered[seq]:
            self._offered[seq] = full
            self.tables.remember(seq, tokens, salt)

    def blocks_needed(self, growth: Mapping[int, int]) -> int:
        """As ``BlockTables.needed``, quicker: nothing is shared but full blocks, which nobody writes to."""
        size, room, new = self.tables.pool.block_size, self._room, 0
        for seq, tokens in growth.items():
            if tokens > room[seq]:
                new -= (room[seq] - tokens) // size
        return new

    def blocks_for(self, tokens: int) -> int:
        return self.tables.blocks_for(tokens)

    @property
    def available(self) -> int:
        return self.tables.pool.available

    @property
    def n_blocks(self) -> int:
        return self.tables.pool.n_blocks

    def grow(self, growth: Mapping[int, int]) -> None:
        """Take the blocks of a step and count its tokens. Raises ``CacheFull``, and nothing is changed."""
        if self.blocks_needed(growth) > self.available:
            raise CacheFull(f"a step of {sum(growth.values())} tokens does not fit into {self.available} blocks")
        for seq, tokens in growth.items():
            if tokens > self._room[seq]:
                self.tables.reserve({seq: (self.lengths[seq], tokens)})
            self.lengths[seq] += tokens
            self._room[seq] = -self.lengths[seq] % self.tables.pool.block_size


def roofline_seconds(
    config: ModelConfig, hw: Hardware, dtype: str = "bf16", overhead_seconds: float = 0.0
) -> StepSeconds:
    """Step times on a machine by its limits: for each part of the step the longer of compute and memory time.

    As ``analysis.cost.step_time``, for a ragged step: weights are read once for all, keys and values once
    per sequence, and the head runs on the rows that yield a token. ``overhead_seconds`` is added to each step;
    a real one is slower still.
    """
    size, head = dtype_bytes(dtype), matrix_parameters(config)["head"]

    @lru_cache(maxsize=None)
    def matrices(tokens: int) -> float:
        parts = prefill_cost(config, tokens, bytes_per_element=size)
        return sum(time_bound(parts[name], hw, dtype) for name in ("projections", "mlp"))

    @lru_cache(maxsize=None)
    def attention(tokens: int, context: int) -> tuple[float, float]:
        part = prefill_cost(config, tokens, context, bytes_per_element=size)["attention"]
        return part.flops, part.bytes

    def seconds(plan: Plan) -> float:
        tokens = rows = 0
        flops = moved = 0.0
        for work in plan.work:
            more_flops, more_bytes = attention(work.tokens, work.sequence.computed)
            flops, moved = flops + more_flops, moved + more_bytes
            tokens += work.tokens
            rows += work.yields
        logits = Cost(2 * rows * head, size * ((head if rows else 0) + tokens * config.M))
        return overhead_seconds + matrices(tokens) + sum(time_bound(c, hw, dtype) for c in (Cost(flops, moved), logits))

    return seconds


def blocks_beside_weights(
    config: ModelConfig, hw: Hardware, page_size: int = 16, dtype: str = "bf16", usable: float = 0.9
) -> int:
    """Blocks that fit into the usable share of a machine's memory beside the weights. Raises ``CacheFull`` if none does."""
    left = usable * hw.memory - weight_bytes(config, dtype_bytes(dtype))
    blocks = int(left // (page_size * kv_bytes_per_token(config, dtype_bytes(dtype))))
    if blocks < 1:
        raise CacheFull(
            f"{hw.name} has no room for one block of {page_size} tokens beside the weights; {left:.3g} bytes are left. "
            "Try a smaller model, fewer bytes per element or a machine with more memory"
        )
    return blocks


def simulate(
    arrivals: Seq[Arrival],
    step_seconds: StepSeconds,
    *,
    n_blocks: int,
    page_size: int = 16,
    reuse: Callable[[int], Reuse] | None = None,
    **settings: Any,
) -> Trace:
    """Serve a workload to its end; the trace, in virtual seconds from 0. Other settings are the ``Scheduler``'s.

    Request numbers are places in ``arrivals``. Every request runs to its ``max_new_tokens``; tokens are its
    ``reply_ids``, else made up, the same for the same prompt. Raises ``RequestError`` when a request comes that could
    not run even alone, ``KveduError`` if steps take no time or nothing is let in.
    """
    blocks = PlannedBlocks(n_blocks, page_size, reuse(page_size) if reuse is not None else None)
    scheduler, trace = Scheduler(blocks, **settings), Trace()
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
        held, start = set(scheduler.running), now
        plan = scheduler.plan()
        if not plan.work:
            raise KveduError(f"{len(scheduler.waiting)} requests wait and none runs: admit let nobody in")
        took = step_seconds(plan)
        if not took > 0:
            raise KveduError(f"a step must take some time, or the clock stands still; step_seconds gave {took}")
        now += took
        shares = _start(plan, held, start, trace)
        blocks.grow({work.sequence.run.seq: work.tokens for work in plan.work})
        scheduler.computed(plan)
        ended = _sample(plan, shares, arrivals, scheduler)
        _let_come(coming, now, arrivals, scheduler, trace)
        pool = blocks.tables.pool
        trace.events.append(
            Stepped(now, start, steps, shares, len(scheduler.waiting), pool.in_use, pool.evictable, pool.free)
        )
        steps += 1
        for sequence in ended:
            trace.events.append(Ended(now, sequence.id, 0, sequence.run.finished, sequence.run.sampled))
            for number in followers[sequence.id]:
                heappush(coming, (now + arrivals[number].time, number))
    return trace


def _let_come(
    coming: list[tuple[float, int]], now: float, arrivals: Seq[Arrival], scheduler: Scheduler, trace: Trace
) -> None:
    """Give the scheduler what has arrived by now; it never sees the future."""
    while coming and coming[0][0] <= now:
        time, number = heappop(coming)
        arrival = arrivals[number]
        request = Request(tuple(arrival.prompt_ids), arrival.max_new_tokens, Sampling())
        run = Run.start(request, number, 0, None, None)
        scheduler.add(Sequence(run, time, arrival.priority, arrival.salt))
        trace.events.append(Arrived(time, number, len(request.prompt_ids), request.max_new_tokens))


def _start(plan: Plan, held: set[Sequence], start: float, trace: Trace) -> tuple[Share, ...]:
    """Record who was let in and who was sent back, as the engine does; the shares of the step."""
    for s, computed in plan.preempted:
        trace.events.append(Preempted(start, s.id, 0, computed))
    shares = []
    for work in plan.work:
        s = work.sequence
        if s not in held:
            trace.events.append(Admitted(start, s.id, 0, s.computed, s.preemptions > 0))
        shares.append(Share(s.id, 0, work.tokens, s.computed, work.yields))
    return tuple(shares)


def _sample(plan: Plan, shares: Seq[Share], arrivals: Seq[Arrival], scheduler: Scheduler) -> list[Sequence]:
    """Give a token to everyone who is due one; those that it ended."""
    ended = []
    for work, share in zip(plan.work, shares):
        if share.sampled:
            run, reply = work.sequence.run, arrivals[share.request].reply_ids
            run.take(reply[run.sampled] if run.sampled < len(reply) else run.sampled, None)
            if run.finished:
                scheduler.finish(work.sequence)
                ended.append(work.sequence)
    return ended
