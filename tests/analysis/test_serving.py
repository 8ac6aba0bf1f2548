"""The closed form of a server: its limits by hand, Little's law as a fixed point, and the simulated scheduler beside it."""

import math
from dataclasses import replace

import pytest

from kvedu.analysis.cost import step_time
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.serving import Server, server
from kvedu.engine import metrics, workload
from kvedu.engine.simulate import simulate
from kvedu.engine.step_time import blocks_beside_weights, roofline_seconds
from kvedu.engine.trace import Admitted, Ended, Stepped
from kvedu.errors import KveduError

LLAMA, QWEN = known_model("Llama-3-8B").config, known_model("Qwen3-4B").config
A100 = hardware("A100-80GB-SXM")
MADE = Server(weights=10e-3, compute=1e-3, cache=0.5e-3, steps=20)


def test_step_and_throughput_by_hand():
    """Up to 10 sequences the weights' 10 ms cover the products; the cache is paid for by each."""
    assert MADE.compute_bound_from == pytest.approx(10)
    assert [MADE.step(B) for B in (1, 10, 11, 20)] == pytest.approx([10.5e-3, 15e-3, 16.5e-3, 30e-3])
    assert MADE.throughput(10) == pytest.approx(10 / (20 * 15e-3))
    assert MADE.saturation == pytest.approx(1 / (20 * 1.5e-3))
    assert MADE.knee == pytest.approx(7)
    assert [MADE.throughput(B) for B in (10, 100, 1000)] == pytest.approx([MADE.saturation] * 3)
    assert replace(MADE, cache=0).knee == pytest.approx(10)


@pytest.mark.parametrize("chip", [MADE, server(LLAMA, A100, 500, 150), server(QWEN, hardware("T4"), 200, 100, "fp16")])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_running_at_solves_littles_law(chip, share):
    rate = share * chip.saturation
    running = chip.running_at(rate)
    assert running == pytest.approx(rate * chip.steps * chip.step(running))
    assert running <= chip.compute_bound_from * (1 + 1e-9)


def test_past_saturation_the_line_grows_for_ever():
    assert MADE.running_at(MADE.saturation) == MADE.running_at(2 * MADE.saturation) == math.inf
    assert MADE.running_at(MADE.saturation * (1 - 1e-9)) == pytest.approx(MADE.compute_bound_from, rel=1e-6)


def test_lone_step_is_the_cost_models():
    """One sequence without a prompt to share: the decode step of ``analysis.cost``, to the share of one prompt token."""
    chip = server(LLAMA, A100, prompt=1, output=999)
    assert chip.step(1) == pytest.approx(step_time(LLAMA, A100, context=500), rel=1e-4)


@pytest.mark.parametrize("model", ["Qwen3-4B", "Llama-3-8B"])
@pytest.mark.parametrize("clients", [1, 4, 16, 64, 128])
def test_simulated_scheduler_is_near_it(model, clients):
    """A closed load on the real scheduler: throughput within 25 % of the closed form, worst at the knee."""
    config, prompt, output = known_model(model).config, 200, 100
    work = workload.independent(
        workload.all_at_once(max(8, 3 * clients)), workload.uniform(100, 300), workload.uniform(50, 150), seed=1
    )
    run = simulate(
        workload.closed(work, clients), roofline_seconds(config, A100),
        n_blocks=blocks_beside_weights(config, A100), max_running=clients,
    )  # fmt: skip
    first_end, last_start = run.of(Ended)[0].time, run.of(Admitted)[-1].time
    steady = [step for step in run.of(Stepped) if first_end <= step.start < last_start]
    tokens = sum(share.sampled for step in steady for share in step.shares)
    found = tokens / sum(step.time - step.start for step in steady)
    chip = server(config, A100, prompt, output)
    assert 0.75 < found / (chip.throughput(clients) * output) < 1.1
    median = metrics.percentile([t.tpot_seconds for t in metrics.timings(run) if t.tpot_seconds], 50)
    assert 0.85 < median / chip.step(clients) < 1.25


@pytest.mark.parametrize("change", [{"weights": 0.0}, {"compute": -1.0}, {"cache": -1e-9}, {"steps": 0}, {"weights": math.nan}])
def test_what_is_no_server_is_refused(change):
    with pytest.raises(KveduError, match="positive times"):
        replace(MADE, **change)
    with pytest.raises(KveduError, match="not negative"):
        MADE.running_at(-1)
    with pytest.raises(KveduError, match="at least 1 prompt token"):
        server(LLAMA, A100, 0, 10)
