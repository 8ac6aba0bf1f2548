"""The decision tool computes what ``analysis.strategies`` computes, and chooses as it does."""

import itertools

import pytest

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.strategies import choose, options
from kvedu.viz import strategy
from kvedu.viz.node import evaluate
from kvedu.viz.still import still

LOSSES = {"bf16, as trained": 0.0, "int8": 0.0, "4 bit, KIVI": 0.05, "2 bit, KIVI": 0.3, "evict to a quarter": 0.4, "offload to the host": 0.0}
DATA = strategy.data(LOSSES)
GRID = list(itertools.product(strategy.MODELS, ("L4", "H200-SXM"), (1, 127, 8192, 131072), (1, 12)))


def test_bytes_and_times_are_the_librarys() -> None:
    models, machines = ({one["name"]: one for one in DATA[kind]} for kind in ("models", "machines"))
    calls = [
        ("option", [s, models[m], machines[h], context, batch, DATA["reserve"], DATA["host"]])
        for m, h, context, batch in GRID
        for s in DATA["strategies"]
    ]
    found = iter(evaluate("strategy", calls))
    for model, machine, context, batch in GRID:
        for wanted in options(known_model(model).config, hardware(machine), context, batch):
            given = next(found)
            for key in ("cache", "room", "weights", "most", "fits"):
                assert given[key] == getattr(wanted, key), (model, machine, context, batch, wanted.strategy.name, key)
            assert given["step"] == pytest.approx(wanted.step, rel=1e-12)


@pytest.mark.parametrize(("context", "batch", "limit"), [(8192, 1, 0), (8192, 8, 0), (8192, 12, 0), (8192, 12, 100), (8192, 128, 0), (512, 1, 20)])
def test_the_choice_is_the_librarys(context: int, batch: int, limit: int) -> None:
    wanted = choose(options(known_model("Llama-3-8B").config, hardware("L4"), context, batch), LOSSES, limit / 1000 if limit else None)
    state = {"model": "Llama-3-8B", "machine": "L4", "context": context, "batch": batch, "limit": limit}
    said = still("strategy", DATA, state).say
    if wanted is None:
        assert "Nothing that keeps this model" in said
    elif wanted.strategy.name == "bf16, as trained":
        assert "nothing needs to change" in said
    else:
        assert f"choose {wanted.strategy.name}" in said
