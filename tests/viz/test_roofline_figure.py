"""The scripts' costs and bounds are those of ``kvedu.analysis``, on a grid."""

import itertools
import json
from pathlib import Path

import pytest

from kvedu.analysis.cost import step_time
from kvedu.analysis.flops import PARTS, decode_cost, prefill_cost, total, uncached_step_cost
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.roofline import attainable, bound_by, time_bound
from kvedu.book.gpu_rows import gpu_row
from kvedu.viz import roofline, still
from kvedu.viz.configs import limits, sizes
from kvedu.viz.node import evaluate

MODELS = ("SmolLM2-135M", "Llama-3-8B", "Mistral-7B-v0.1")
GRID = list(itertools.product(MODELS, (1, 7, 5000), (0, 1, 4096, 100_000), (1, 3), (2, 4), (None, 1)))


def test_costs_of_a_step_by_part() -> None:
    """Windows just reached and passed, cache of another size than the weights."""
    found = evaluate("roofline", [("prefillCost", (sizes(name), *rest)) for name, *rest in GRID])
    for (name, *rest), parts in zip(GRID, found, strict=True):
        costs = prefill_cost(known_model(name).config, *rest)
        for part in PARTS:
            assert (parts[part]["flops"], parts[part]["bytes"]) == (costs[part].flops, costs[part].bytes), (name, rest, part)


def test_decode_and_uncached_steps() -> None:
    grid = list(itertools.product(MODELS, (1, 4095, 4096, 4097), (1, 8), (2,)))
    decode = evaluate("roofline", [("decodeCost", (sizes(name), *rest)) for name, *rest in grid])
    whole = evaluate("roofline", [("uncachedCost", (sizes(name), *rest)) for name, *rest in grid])
    held = evaluate("roofline", [("cacheBytes", (sizes(name), *rest)) for name, *rest in grid])
    for (name, *rest), step, again, n_bytes in zip(grid, decode, whole, held, strict=True):
        config = known_model(name).config
        assert {part: cost["flops"] for part, cost in step.items()} == {
            part: cost.flops for part, cost in decode_cost(config, *rest).items()
        }
        assert {part: cost["bytes"] for part, cost in again.items()} == {
            part: cost.bytes for part, cost in uncached_step_cost(config, *rest).items()
        }
        assert n_bytes == kv_cache_bytes(config, *rest)


@pytest.mark.parametrize("name", roofline.MACHINES)
def test_bounds(name: str) -> None:
    machine, given = hardware(name), limits(name)
    costs = [total(decode_cost(known_model("Llama-3-8B").config, 1000, batch)) for batch in (1, 64, 1024)]
    numbers = [given["flops"]["bf16"], given["bandwidth"]]
    times = evaluate("roofline", [("timeBound", [{"flops": c.flops, "bytes": c.bytes}, *numbers]) for c in costs])
    roofs = evaluate("roofline", [("attainable", [c.intensity, *numbers]) for c in costs])
    assert times == pytest.approx([time_bound(cost, machine, "bf16") for cost in costs], rel=1e-12)
    assert roofs == pytest.approx([attainable(cost.intensity, machine, "bf16") for cost in costs], rel=1e-12)


def test_a_step_takes_its_parts_one_after_another() -> None:
    """Decode and prefill, short and long: not the bound of the sum, which is less where one part waits for memory and another for compute."""
    config, machine = known_model("Llama-3-8B").config, hardware("H200-SXM")
    grid = [(batch, tokens, context) for batch in (1, 379, 1024) for tokens in (1, 512) for context in (0, 256, 8192)]
    costs = [prefill_cost(config, tokens, context, batch, 2) for batch, tokens, context in grid]
    asked = [{name: {"flops": part.flops, "bytes": part.bytes} for name, part in parts.items()} for parts in costs]
    found = evaluate("roofline", [("stepTime", [parts, machine.peak("bf16"), machine.bandwidth]) for parts in asked])
    assert found == pytest.approx([step_time(config, machine, *one) for one in grid], rel=1e-12)
    at = {"machine": "H200-SXM", "batch": 256, "context": 256}
    seconds, whole = step_time(config, machine, 256, 1, 256), time_bound(total(prefill_cost(config, 1, 256, 256, 2)), machine, "bf16")
    assert f"at least {1e3 * seconds:.2f} ms" in still("roofline", roofline.data(), at).say and seconds > 1.1 * whole


def test_the_sentence_names_the_bound() -> None:
    """One just below and just above the batch at which the bound changes, at an empty cache."""
    config, machine = known_model("Llama-3-8B").config, hardware("H100-SXM")
    said = {}
    for batch in (128, 512):
        bound = bound_by(total(decode_cost(config, 0, batch)), machine, "bf16")
        said[batch] = bound
        words = still("roofline", roofline.data(), {"batch": batch, "context": 0}).say
        assert f"{bound} bounds it" in words
    assert said == {128: "memory", 512: "compute"}


def test_what_does_not_fit_says_so() -> None:
    assert "would not fit" in still("roofline", roofline.data(), {"batch": 1024, "context": 8192}).say
    assert "would not fit" not in still("roofline", roofline.data()).say


def test_stored_points_lie_under_a_roof_that_the_figure_has() -> None:
    """Measured steps belong to a machine of the figure; a stored GPU row whose kernels are not in it asks for `make traces NAME=16_roofline`."""
    stored = json.loads((Path(__file__).resolve().parents[2] / "book" / "figures" / "16_roofline.json").read_text("utf-8"))
    machines = {one["name"]: one for one in stored["machines"]}
    assert len(stored["points"]) >= 3
    for point in stored["points"]:
        machine = machines[point["machine"]]
        assert 0 < point["flops"] <= 1.5 * min(machine["flops"]["bf16"], point["intensity"] * machine["bandwidth"]), point
    row = gpu_row("kernels")
    if row is not None and any(word in row.machine["gpu"] for word in ("H200", "H100", "A100", "L4")):
        assert any(point["machine"] != "CPU of the book" for point in stored["points"])
    assert "✚ measured" in still("roofline", stored).svg
