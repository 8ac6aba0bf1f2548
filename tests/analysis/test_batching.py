"""Slots and lengths: the formulas against brute force, and against the scheduler itself."""

import itertools
import random

import pytest

from kvedu.analysis.batching import (
    continuous_steps_between,
    mean_longest,
    static_over_continuous,
    static_steps,
    static_utilization,
)
from kvedu.engine.metrics import slot_utilization
from kvedu.engine.scheduler import static
from kvedu.engine.simulate import simulate
from kvedu.engine.trace import Stepped
from kvedu.engine.workload import Arrival
from kvedu.errors import KveduError


@pytest.mark.parametrize("lengths", [[4, 2, 10, 3], [7], [1, 1, 1, 9], [5, 5, 5]])
@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_mean_longest_is_the_mean_over_all_draws(lengths: list[int], batch: int) -> None:
    draws = list(itertools.product(lengths, repeat=batch))
    assert mean_longest(lengths, batch) == pytest.approx(sum(map(max, draws)) / len(draws))
    assert mean_longest(lengths[::-1], batch) == mean_longest(lengths, batch)


def test_how_much_static_batching_loses() -> None:
    """Nothing where all are alike or alone; towards 2 for uniform lengths; towards longest over mean for any."""
    assert static_over_continuous([6] * 9, 100) == pytest.approx(1)
    assert static_over_continuous([4, 2, 10, 3], 1) == 1
    uniform = range(1, 1001)
    factors = [static_over_continuous(uniform, batch) for batch in (1, 2, 8, 64, 10**4)]
    assert factors == sorted(factors) and factors[1] == pytest.approx(4 / 3, abs=0.01) and factors[-1] < 2
    assert static_over_continuous([4, 2, 10, 3], 10**4) == pytest.approx(10 / 4.75)
    assert static_utilization(uniform, 8) * static_over_continuous(uniform, 8) == pytest.approx(1)


def run(lengths: list[int], batch: int, **settings):
    """The scheduler on a clock that takes a second a step, all prompts of one token, room for everybody."""
    arrivals = [Arrival(0.0, (1,), n) for n in lengths]
    return simulate(arrivals, lambda plan: 1.0, n_blocks=10_000, max_running=batch, **settings)


def test_the_source_s_four_sequences() -> None:
    """A7.1: 4, 2, 10 and 3 tokens take 10 steps of four slots, 19 of them used."""
    assert static_steps([4, 2, 10, 3], 4) == 10
    assert slot_utilization(run([4, 2, 10, 3], 4, admit=static), 4) == 19 / 40
    assert continuous_steps_between([4, 2, 10, 3], 4) == (10, 12)


@pytest.mark.parametrize("seed", range(8))
def test_the_scheduler_keeps_to_the_formulas(seed: int) -> None:
    rng = random.Random(seed)
    batch = rng.choice([1, 2, 3, 8, 13])
    lengths = [max(1, round(rng.lognormvariate(2, 1))) for _ in range(rng.choice([1, 7, 40]))]
    assert len(run(lengths, batch, admit=static).of(Stepped)) == static_steps(lengths, batch)
    fewest, most = continuous_steps_between(lengths, batch)
    assert fewest <= len(run(lengths, batch).of(Stepped)) <= most


def test_the_bound_on_continuous_steps_is_met() -> None:
    """Just inside the edge: the longest comes last and finds every slot freed in the same step."""
    lengths, batch = [3, 3, 3, 3, 3, 3, 9], 3
    steps = len(run(lengths, batch).of(Stepped))
    assert steps == 15 and continuous_steps_between(lengths, batch) == (9, 15)


@pytest.mark.parametrize(("lengths", "batch"), [([], 2), ([3, 0], 2), ([3], 0)])
def test_what_is_no_line_is_refused(lengths: list[int], batch: int) -> None:
    for formula in (mean_longest, static_over_continuous, static_steps, continuous_steps_between):
        with pytest.raises(KveduError, match="at least one"):
            formula(lengths, batch)
