"""The memory calculator's script says what ``kvedu.analysis`` says."""

import itertools

import pytest

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes, max_batch, weight_bytes
from kvedu.viz import memory, still
from kvedu.viz.node import evaluate

MODELS = ("SmolLM2-135M", "Llama-3-8B", "Mistral-7B-v0.1", "Gemma-2-9B", "DeepSeek-V3")
TOKENS, BATCHES, SIZES = (1, 100, 4096, 4097, 131072), (1, 7), (1, 2, 4)


def groups(name: str) -> list[dict]:
    shape = known_model(name).shape
    return [{"layers": n, "window": window, "elements": shape.elements} for n, window in shape.layer_groups()]


def test_cache_bytes_on_a_grid() -> None:
    """Windows and latents included."""
    grid = list(itertools.product(MODELS, TOKENS, BATCHES, SIZES))
    found = evaluate("memory", [("cacheBytes", (groups(name), *rest)) for name, *rest in grid])
    assert found == [kv_cache_bytes(known_model(name).shape, *rest) for name, *rest in grid]


def test_what_fits_on_a_grid() -> None:
    grid = list(itertools.product(MODELS, (10**9, 16 * 2**30, 80 * 10**9 + 1), TOKENS, SIZES))
    found = evaluate("memory", [("mostSequences", (groups(name), *rest)) for name, *rest in grid])
    assert found == [max_batch(budget, known_model(name).shape, tokens, size) for name, budget, tokens, size in grid]
    assert evaluate("memory", [("mostSequences", (groups("Llama-3-8B"), budget, 10, 2)) for budget in (0, -5)]) == [0, 0]


def test_the_data_is_the_librarys() -> None:
    data = memory.data()
    for row in data["models"]:
        config = known_model(row["name"]).config
        assert row["weights"] == {str(size): weight_bytes(config, size) for size in SIZES}
    assert data["predict"]["choices"][data["predict"]["answer"]] == "A quarter"


@pytest.mark.parametrize(("batch", "sign"), [(44, "It fits"), (64, "Out of memory by")])
def test_out_of_memory_just_past_the_edge(batch: int, sign: str) -> None:
    """The default machine holds 44 sequences beside the weights, and says so on either side of the edge."""
    config = known_model("Llama-3-8B").config
    assert max_batch(hardware("A100-40GB-SXM").memory - weight_bytes(config, 2), config, 4096) == 44
    said = still("memory", memory.data(), {"batch": batch}).say
    assert said.startswith(sign) and "44 sequences" in said


def test_weights_alone_may_be_too_much() -> None:
    assert "alone exceed" in still("memory", memory.data(), {"machine": "T4", "model": "Llama-3-70B"}).say
