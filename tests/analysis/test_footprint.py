"""The one-line footprint: the sum of the formulas, for a config, a model or a name."""

import pytest

import kvedu
from kvedu.analysis.footprint import memory
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.weights import activation_bytes, weight_bytes
from kvedu.errors import KveduError
from tiny import tiny_config, tiny_model


def test_is_the_sum_of_the_formulas():
    config = tiny_config()
    got = memory(config, tokens=100, batch=3, bytes_per_element=4, kv_bytes_per_element=1)
    assert got.weights == weight_bytes(config, 4)
    assert got.kv_cache == kv_cache_bytes(config, 100, 3, 1)
    assert got.activations == activation_bytes(config, 1, 3, 99, 4)
    assert got.total == got.weights + got.kv_cache + got.activations
    assert memory(tiny_model(config), 100, 3, bytes_per_element=4, kv_bytes_per_element=1) == got


def test_by_name_and_from_the_front_door():
    config = known_model("Llama-3-8B").config
    assert kvedu.memory("Llama-3-8B", 4096) == memory(config, 4096)
    assert "KV cache 512.00 MiB" in str(kvedu.memory("Llama-3-8B", 4096))


def test_what_cannot_be_sized_is_named():
    with pytest.raises(KveduError, match="no known model 'nope'"):
        memory("nope", 10)
    with pytest.raises(KveduError, match="DeepSeek-V3 is of a family"):
        memory("DeepSeek-V3", 10)
    with pytest.raises(KveduError, match="not int"):
        memory(3, 10)
