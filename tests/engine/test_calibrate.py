"""Calibration: the fit finds the coefficients of an engine whose time is known, and predicts what it has not seen."""

import pytest

from engines import engine_of
from kvedu.analysis.roofline import Hardware
from kvedu.engine import calibrate
from kvedu.engine.calibrate import Calibration
from kvedu.engine.simulate import simulate
from kvedu.engine.step_time import roofline_parts
from kvedu.engine.trace import Stepped
from kvedu.engine.workload import Arrival, all_at_once, independent, uniform
from kvedu.errors import KveduError
from tiny import tiny_config, tiny_model

CHIP = Hardware("chip", {"fp32": 1e9}, bandwidth=2e8, memory=10**9, source="made up for this test", date="2026-11-30")
SHAPES = ((1, 8), (1, 40), (3, 20), (6, 12), (8, 30))


class TimedModel:
    """A tiny model whose engine runs on a clock that a known formula moves: seconds of a step from its plan."""

    def __init__(self, monkeypatch, overhead, per_sequence, slower):
        self.now, self.model = 0.0, tiny_model(tiny_config(L=1))
        parts = roofline_parts(self.model.config, CHIP, "fp32")

        def timed(model, **settings):
            engine = engine_of_class(model, **settings)
            run = engine.executor.run

            def moving(plan, *before):
                limits = parts(plan)
                self.now += overhead + per_sequence * len(plan.work) + sum(slower[name] * limits[name] for name in slower)
                return run(plan, *before)

            engine.executor.run = moving
            return engine

        engine_of_class = calibrate.Engine
        monkeypatch.setattr(calibrate, "Engine", timed)
        self.engine = timed

    def clock(self):
        return self.now


@pytest.mark.parametrize(
    "overhead, per_sequence, slower",
    [
        (3e-3, 1e-4, dict(matrices=2.0, attention=5.0, head=1.5)),
        (0.0, 0.0, dict(matrices=1.0, attention=1.0, head=1.0)),
        (1e-2, 2e-3, dict(matrices=4.0, attention=0.0, head=3.0)),
    ],
)
def test_the_coefficients_are_found(monkeypatch, overhead, per_sequence, slower):
    timed = TimedModel(monkeypatch, overhead, per_sequence, slower)
    calibration = Calibration(timed.model, CHIP, "fp32", shapes=SHAPES, clock=timed.clock)
    calibration.round()
    found = calibration.fit()
    assert found.overhead_seconds == pytest.approx(overhead, abs=1e-6)
    assert found.sequence_seconds == pytest.approx(per_sequence, abs=1e-7)
    assert found.slower == pytest.approx(slower, abs=1e-4) and found.bandwidth_factor == 1
    assert max(map(abs, found.errors)) < 1e-3


def test_an_engine_that_was_calibrated_is_predicted(monkeypatch):
    """The engine's own trace of a workload that the calibration never saw, and the simulator's: the same times."""
    timed = TimedModel(monkeypatch, 3e-3, 1e-4, dict(matrices=2.0, attention=5.0, head=1.5))
    calibration = Calibration(timed.model, CHIP, "fp32", shapes=SHAPES, clock=timed.clock)
    calibration.round()
    load = independent(all_at_once(14), uniform(4, 50), uniform(2, 20), seed=2)
    load = [Arrival(0.0, tuple(i % 97 for i in a.prompt_ids), a.max_new_tokens) for a in load]
    reference = engine_of(timed.model, pages=100, page_size=4)
    page = reference.cache.nbytes // reference.cache.n_blocks
    engine = timed.engine(timed.model, cache_bytes=100 * page, page_size=4, max_running=5, token_budget=24, clock=timed.clock)
    timed.now = 0.0
    for a in load:
        engine.add(a.prompt_ids, max_new_tokens=a.max_new_tokens, ignore_eos=True)
    while not engine.idle:
        engine.step()
    trace = simulate(load, calibration.fit(), n_blocks=100, page_size=4, max_running=5, token_budget=24)
    was, said = engine.trace.of(Stepped), trace.of(Stepped)
    assert [s.shares for s in was] == [s.shares for s in said]
    assert [s.time for s in said] == pytest.approx([s.time for s in was], rel=1e-3)


def test_equal_steps_count_once_and_by_their_median(monkeypatch):
    """A round that was disturbed, every step three times as long, moves nothing where two others were not."""
    timed = TimedModel(monkeypatch, 3e-3, 1e-4, dict(matrices=2.0, attention=5.0, head=1.5))
    factor = 1.0
    calibration = Calibration(timed.model, CHIP, "fp32", shapes=SHAPES, clock=lambda: timed.now * factor)
    for factor in (1.0, 3.0, 1.0):
        calibration.round()
    assert calibration.fit().overhead_seconds == pytest.approx(3e-3, rel=1e-3)


def test_too_little_to_fit():
    with pytest.raises(KveduError, match="0 kinds of steps"):
        Calibration(tiny_model(), CHIP, "fp32", shapes=((1, 4),)).fit()
