"""What is left of a step that failed on the way: nothing, so that the next one computes the same."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from kvedu.engine.choose import Turn
from kvedu.engine.plan import Plan
from kvedu.engine.trace import Trace
from kvedu.model.sampling import Sampler


@contextmanager
def undone(trace: Trace, plan: Plan, turns: list[Turn], start: float) -> Iterator[None]:
    """After an exception in the block the streams of random numbers stand where they stood; the cache undoes a step by itself.

    Who was let in or sent back by the plan stays so, and the trace is told. ``turns`` may be filled in the block.
    """
    try:
        yield
    except BaseException:
        trace.events += plan.events(start)
        for turn in turns:
            _rewind(turn)
        raise


def _rewind(turn: Turn) -> None:
    """A stream gives one number for each token that was sampled, be it in flight. Cost: O(tokens)."""
    sequence, run = turn.sequence, turn.sequence.run
    used = run.sampled + sequence.ahead if sequence is turn.work.sequence and not run.sampler.sampling.greedy else 0
    run.sampler = Sampler(run.sampler.sampling, sequence.copy)
    for _ in range(used):
        run.sampler.uniform()
