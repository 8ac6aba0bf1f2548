"""The launches figure unrolls a step and times it as its twin does, and its parts are what a whole step launches."""

import itertools

import pytest

from kvedu.analysis.known_models import known_model
from kvedu.kernels import launch
from kvedu.viz import launches, still
from kvedu.viz.node import evaluate

pytestmark = pytest.mark.skipif(launch.missing() is not None, reason="kernels are planned here, and Triton does not exist on this system")
CONFIG = known_model("SmolLM2-135M").config


@pytest.fixture(scope="module")
def made() -> dict:
    return launches.data(models=("SmolLM2-135M",))


@pytest.mark.parametrize("fused", [False, True])
def test_the_parts_are_the_step(made: dict, fused: bool) -> None:
    """Counted on four layers and unrolled to thirty: the names and bytes of all thirty, at a batch that was not counted."""
    parts = made["models"][0]["fused" if fused else "apart"]
    whole = launches.step(CONFIG, 5, fused=fused)
    rows = [*parts["before"], *parts["alike"] * parts["layer"], *parts["behind"]]
    assert [row[0] for row in rows] == [one.name for one in whole]
    sized = launches.unrolled(parts, 5, 8)
    assert all(one.bytes is None or one.bytes == size for one, size in zip(whole, sized))
    assert all(size > 0 for size in sized)


def test_unrolling_and_times_on_a_grid(made: dict) -> None:
    parts = [made["models"][0][key] for key in ("apart", "fused")]
    grid = list(itertools.product(parts, (1, 7, 256), (0, 513)))
    assert evaluate("launches", [("unrolled", list(one)) for one in grid]) == [launches.unrolled(*one) for one in grid]
    times = ([], [3.0], [0.5, 9.0, 0.25], [1.0] * 40)
    grid = [one for one in itertools.product(times, (1, 5), (0, 0.5), (False, True)) if one[0]]
    for found, one in zip(evaluate("launches", [("stepUs", list(one)) for one in grid]), grid):
        assert found == pytest.approx(list(launches.step_us(*one)))


def test_who_waits_is_said(made: dict) -> None:
    assert "waits for its host most of the time" in still("launches", made).say
    recorded = still("launches", made, {"recorded": True, "gap": 0})
    assert "one launch of a recording" in recorded.say and "kept busy" in recorded.say
    assert dict(row[:2] for row in recorded.readout)["launches"] == "1"
    assert "kept busy" in still("launches", made, {"batch": 256, "context": 32768, "fused": True, "launch": 1}).say
