"""Strategies side by side: bytes by hand, against caches that exist, and the choice among them."""

import pytest
import torch

from kvedu import ConcatCache, QuantizedCache
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.strategies import SINKS, WINDOW, Strategy, choose, kivi, options, strategies
from kvedu.errors import KveduError
from tiny import tiny_config

LLAMA = known_model("Llama-3-8B").config
BY_NAME = {s.name: s for s in strategies(LLAMA.D)}


@pytest.mark.parametrize(
    ("name", "per_token_and_layer"),
    [
        ("bf16, as trained", 2 * 8 * 128 * 2),
        ("int8", 2 * 8 * (128 + 2)),
        ("MQA", 2 * 128 * 2),
        ("MLA", (512 + 64) * 2),
        ("offload to the host", 2 * 8 * 128 * 2),
    ],
)
def test_bytes_by_hand(name: str, per_token_and_layer: int) -> None:
    assert BY_NAME[name].held(LLAMA, 4096, 3) == 3 * 4096 * 32 * per_token_and_layer


def test_tokens_that_stay() -> None:
    assert BY_NAME["window and sinks"].tokens(100_000) == SINKS + WINDOW and BY_NAME["window and sinks"].tokens(9) == 9
    assert BY_NAME["evict to a quarter"].tokens(4096) == 1024 and BY_NAME["evict to a quarter"].tokens(10) == 3
    quarter = BY_NAME["evict to a quarter"].held(LLAMA, 4096)
    assert quarter == 1024 * 32 * (2 * 8 * 128 * 2 + 8 * (4 + 4))  # positions and scores besides


@pytest.mark.parametrize("tokens", [130, 400])
def test_bytes_are_those_of_the_caches(tokens: int) -> None:
    """The forms that the library has hold exactly these bytes, in a model of the default shape with fewer layers."""
    config = tiny_config(D=64)
    made = {
        "bf16, as trained": ConcatCache(config, dtype=torch.bfloat16),
        "4 bit, KIVI": QuantizedCache.kivi(config, bits=4, dtype=torch.bfloat16),
        "2 bit, KIVI": QuantizedCache.kivi(config, bits=2, dtype=torch.bfloat16),
    }
    for strategy in strategies(config.D):
        if (cache := made.get(strategy.name)) is None:
            continue
        with cache.step({cache.add(): tokens}) as view:
            for layer in range(config.L):
                k_NKD, v_NKD = torch.randn(2, tokens, config.K, config.D, dtype=torch.bfloat16)
                view.append(layer, k_NKD, v_NKD)
        assert strategy.held(config, tokens) == cache.nbytes, strategy.name


def test_options_add_up() -> None:
    L4 = hardware("L4")
    found = {o.strategy.name: o for o in options(LLAMA, L4, 8192, 4)}
    plain, host = found["bf16, as trained"], found["offload to the host"]
    assert plain.cache == 4 * 2**30 and plain.step == (plain.weights + plain.cache) / L4.bandwidth
    assert host.cache == plain.cache * 2 // 32 and host.most in range(15 * plain.most, 17 * plain.most)
    assert host.step == max(plain.step, plain.cache / 50e9)
    assert all(o.fits == (o.most >= 4) for o in found.values())


def test_a_machine_that_cannot_hold_the_weights_holds_nothing() -> None:
    assert {o.most for o in options(LLAMA, hardware("T4"), 128, 1)} == {0}


def test_the_choice() -> None:
    """Least loss among those that fit; a limit on the step; nothing that has to be trained; nothing unmeasured."""
    losses = {"bf16, as trained": 0.0, "int8": 0.0, "4 bit, KIVI": 0.02, "2 bit, KIVI": 0.2, "window and sinks": 0.9, "offload to the host": 0.0}
    L4 = hardware("L4")
    name = lambda batch, seconds=None: (found := choose(options(LLAMA, L4, 8192, batch), losses, seconds)) and found.strategy.name  # noqa: E731
    assert name(1) == "bf16, as trained" and name(9) == "int8" and name(14) == "offload to the host"
    assert name(14, seconds=0.1) == "4 bit, KIVI" and name(10_000) is None
    assert name(1, seconds=1e-3) is None
    del losses["bf16, as trained"]
    assert name(1) == "int8"


@pytest.mark.parametrize(("context", "batch"), [(0, 1), (1, 0)])
def test_bad_counts(context: int, batch: int) -> None:
    with pytest.raises(KveduError, match="at least 1 token"):
        options(LLAMA, hardware("L4"), context, batch)


def test_kivi_formats() -> None:
    keys, values = kivi(2)
    assert keys.along == "tokens" and values.along == "head" and keys.bits_per_element == 3.0
    assert Strategy("x").retrains is False and BY_NAME["MQA"].retrains and BY_NAME["MLA"].retrains
