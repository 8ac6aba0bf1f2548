"""Traces to compute metrics from: short simulated runs with chunked prompts, waiting and preemption."""

from __future__ import annotations

from kvedu.engine.simulate import simulate
from kvedu.engine.trace import Trace
from kvedu.engine.workload import Arrival
from kvedu.grading.fresh import Fresh


def run(fresh: Fresh, users: int, *, slots: int = 3, n_blocks: int = 40, first: float = 0.0, longest: int = 8) -> Trace:
    """A run of ``users`` requests, the first at ``first`` seconds; prompts of up to 30 tokens in chunks of 8."""
    now, arrivals = first, []
    for _ in range(users):
        arrivals.append(Arrival(now, tuple(fresh.tokens(fresh.integer(5, 30), 1000)), fresh.integer(2, longest)))
        now += fresh.integer(1, 40) / 1000
    return simulate(
        arrivals,
        lambda plan: 0.010 + 0.001 * sum(work.tokens for work in plan.work),
        n_blocks=n_blocks, page_size=4, max_running=slots, token_budget=12, chunk=8,
    )  # fmt: skip
