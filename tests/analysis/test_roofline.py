"""Roofline and datasheet rows: bounds, crossovers just inside and just outside."""

import dataclasses
import re

import pytest
from hypothesis import given, strategies as st

from kvedu.analysis.flops import decode_cost, prefill_cost, total
from kvedu.analysis.hardware import hardware, hardware_names
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes, weights_read
from kvedu.analysis.roofline import (
    DTYPE_BYTES,
    Hardware,
    attainable,
    batch_where_decode_is_compute_bound,
    bound_by,
    context_where_cache_equals_weights,
    prompt_where_prefill_is_compute_bound,
    ridge_point,
    time_bound,
)
from kvedu.errors import KveduError
from kvedu.units import Cost

LLAMA = known_model("Llama-3-8B").config
CHIP = Hardware("chip", {"bf16": 100.0}, bandwidth=10.0, memory=1000, source="made up", date="2026-11-29")


def test_bounds_by_hand():
    assert ridge_point(CHIP, "bf16") == 10
    assert time_bound(Cost(flops=200, read=5, written=5), CHIP, "bf16") == 2
    assert bound_by(Cost(flops=200, read=5, written=5), CHIP, "bf16") == "compute"
    assert time_bound(Cost(flops=200, read=25, written=15), CHIP, "bf16") == 4
    assert bound_by(Cost(flops=200, read=25, written=15), CHIP, "bf16") == "memory"
    assert [attainable(i, CHIP, "bf16") for i in (1, 10, 20)] == [10, 100, 100]


@given(st.integers(0, 10**15), st.integers(1, 10**12), st.sampled_from(hardware_names()))
def test_time_is_flops_over_what_is_attainable(flops, read, name):
    hw, cost = hardware(name), Cost(flops, read)
    assert time_bound(cost, hw, "fp32") >= flops / hw.peak("fp32")
    if flops:
        assert time_bound(cost, hw, "fp32") == pytest.approx(flops / attainable(cost.intensity, hw, "fp32"))
    assert (cost.intensity >= ridge_point(hw, "fp32") * 1.000001) <= (bound_by(cost, hw, "fp32") == "compute")


def test_datasheet_rows():
    """Figures as the vendors give them, dense; a T4 has no bf16; every row says where it is from and when."""
    assert {"laptop-CPU", "T4", "A100-40GB-SXM", "A100-80GB-SXM", "L4", "H100-SXM", "H200-SXM", "M3-Max"} <= set(hardware_names())
    assert "bf16" not in hardware("T4").flops and hardware("T4").peak("fp16") == 65e12
    assert hardware("A100-80GB-SXM").peak("bf16") == 312e12 and hardware("A100-80GB-SXM").bandwidth == 2.039e12
    assert hardware("H200-SXM").bandwidth / hardware("H100-SXM").bandwidth == pytest.approx(4.8 / 3.35)
    assert hardware("H200-SXM").peak("bf16") == hardware("H100-SXM").peak("bf16") == 989e12
    assert hardware("L4").peak("fp16") == 242e12 / 2  # the datasheet's figure is with sparsity
    assert hardware("laptop-CPU").bandwidth == pytest.approx(2 * 8 * 5600e6)
    for name in hardware_names():
        row = hardware(name)
        assert len(row.source) > 20 and re.fullmatch(r"\d{4}-\d\d-\d\d", row.date)
        assert set(row.flops) <= set(DTYPE_BYTES) and ridge_point(row, "fp32") > 5
        assert dataclasses.asdict(row)["name"] == name and hash(row) == hash(row)


def test_decode_is_bound_by_memory_and_a_long_prefill_by_compute():
    """A1.3 holds on every datasheet row for a 1,024-token prompt and one decode step of batch 1."""
    for name in hardware_names():
        hw = hardware(name)
        dtype = "bf16" if "bf16" in hw.flops else "fp16"
        assert bound_by(total(prefill_cost(LLAMA, 1024)), hw, dtype) == "compute"
        assert bound_by(total(decode_cost(LLAMA, 1024)), hw, dtype) == "memory"


@pytest.mark.parametrize("name", ["SmolLM2-135M", "Llama-3-8B", "Qwen3-4B"])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_context_crossover_is_exact(name, batch):
    config = known_model(name).config
    context = context_where_cache_equals_weights(config, batch)
    assert kv_cache_bytes(config, context, batch) >= weights_read(config) > kv_cache_bytes(config, context - 1, batch)


def test_context_crossover_never_comes_when_windows_are_full():
    mistral = known_model("Mistral-7B-v0.1").config
    assert context_where_cache_equals_weights(mistral, batch=1) is None
    assert context_where_cache_equals_weights(mistral, batch=64) is not None


@pytest.mark.parametrize("name", ["laptop-CPU", "A100-80GB-SXM", "H200-SXM"])
def test_prefill_crossover_is_exact(name):
    hw = hardware(name)
    tokens = prompt_where_prefill_is_compute_bound(LLAMA, hw)
    assert bound_by(total(prefill_cost(LLAMA, tokens)), hw, "bf16") == "compute"
    assert bound_by(total(prefill_cost(LLAMA, tokens - 1)), hw, "bf16") == "memory"
    assert tokens == pytest.approx(ridge_point(hw, "bf16"), rel=0.2)  # 2 FLOPs and 2 bytes a weight: near the ridge


def test_decode_crossover_by_batch():
    h100 = hardware("H100-SXM")
    batch = batch_where_decode_is_compute_bound(LLAMA, h100, context=128)
    assert bound_by(total(decode_cost(LLAMA, 128, batch)), h100, "bf16") == "compute"
    assert bound_by(total(decode_cost(LLAMA, 128, batch - 1)), h100, "bf16") == "memory"
    assert batch_where_decode_is_compute_bound(LLAMA, h100, context=4096) is None


@pytest.mark.parametrize("call, words", [
    (lambda: hardware("H300"), "H200-SXM"),
    (lambda: hardware("T4").peak("bf16"), "T4 has no bf16 rate; it has fp32, fp16"),
    (lambda: Hardware("x", {"bf16": 0}, 1, 1, "", ""), "positive"),
    (lambda: Hardware("x", {"tf33": 1}, 1, 1, "", ""), "tf33"),
    (lambda: Hardware("x", {}, 1, 1, "", ""), "no dtype"),
    (lambda: prompt_where_prefill_is_compute_bound(LLAMA, CHIP, "int3"), "int3"),
])  # fmt: skip
def test_errors_teach(call, words):
    with pytest.raises(KveduError, match=words):
        call()
