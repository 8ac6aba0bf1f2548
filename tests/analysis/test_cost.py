"""Step and generation times: sums over steps, interpolation, and the cached-to-uncached ratio."""

import pytest
from hypothesis import given, settings, strategies as st

from kvedu.analysis.cost import (
    Rates,
    generation_time,
    interpolate,
    measured_rates,
    roofline_rates,
    speedup_cached_over_uncached,
    step_time,
)
from kvedu.analysis.flops import decode_cost, total, uncached_step_cost
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.roofline import time_bound
from kvedu.errors import KveduError

SMOL, LLAMA = known_model("SmolLM2-135M").config, known_model("Llama-3-8B").config
H100 = hardware("H100-SXM")


def test_step_time_by_hand():
    """Llama-3-8B decoding alone on an H100: 15.01 GB of weights at 3.35 TB/s is 4.48 ms."""
    assert step_time(LLAMA, H100) == pytest.approx(15.0089e9 / 3.35e12, rel=1e-3)
    assert step_time(LLAMA, H100, overhead=1e-3) == pytest.approx(step_time(LLAMA, H100) + 1e-3)
    assert step_time(LLAMA, H100, dtype="fp32") == pytest.approx(2 * step_time(LLAMA, H100))
    narrow = step_time(LLAMA, H100, context=100_000, kv_bytes_per_element=1)
    assert narrow < step_time(LLAMA, H100, context=100_000)


def test_step_time_bounds_the_whole_from_above():
    """Parts one after another take at least as long as one roofline over their sum."""
    for batch, context in ((1, 10), (64, 10), (64, 4096)):
        whole = time_bound(total(decode_cost(LLAMA, context, batch)), H100, "bf16")
        assert step_time(LLAMA, H100, batch, 1, context) >= whole * (1 - 1e-12)


def test_generation_time_asks_for_each_step_once():
    asked = []

    def note(kind):
        return lambda n: asked.append((kind, n)) or 1.0

    rates = Rates(note("forward"), note("decode"), note("prefill"))
    assert generation_time(rates, 10, 4, cached=True) == 4
    assert asked == [("prefill", 10), ("decode", 10), ("decode", 11), ("decode", 12)]
    asked.clear()
    assert generation_time(rates, 10, 4, cached=False) == 4
    assert asked == [("forward", n) for n in (10, 11, 12, 13)]
    asked.clear()
    generation_time(Rates(note("forward"), note("decode")), 10, 1)
    assert asked == [("forward", 10)]


def test_roofline_rates_add_up():
    rates = roofline_rates(SMOL, hardware("laptop-CPU"), dtype="fp32", overhead=1e-3)
    laptop = hardware("laptop-CPU")
    pass_100 = sum(time_bound(part, laptop, "fp32") for part in uncached_step_cost(SMOL, 100, 1, 4).values())
    assert rates.forward(100) == pytest.approx(pass_100 + 1e-3)
    assert rates.decode(100) == step_time(SMOL, laptop, context=100, dtype="fp32", overhead=1e-3)
    assert generation_time(rates, 100, 1) == rates.prefill(100)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(1, 120))
def test_a_cache_never_costs_time_and_pays_more_with_length(prompt, new):
    rates = roofline_rates(SMOL, hardware("laptop-CPU"), dtype="fp32")
    now = speedup_cached_over_uncached(rates, prompt, new)
    assert now >= 0.99  # new = 1: the same pass, but for writing the cache
    assert speedup_cached_over_uncached(rates, prompt, new + 20) > now


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=6, unique=True), st.floats(1e-4, 1), st.floats(1e-6, 1e-2))
def test_interpolation_is_exact_on_a_line_and_at_its_points(xs, a, b):
    seconds = interpolate({x: a + b * x for x in xs})
    for n in {*xs, min(xs), max(xs), (min(xs) + max(xs)) // 2}:
        assert seconds(n) == pytest.approx(a + b * n)
    for n in (min(xs) - 1, max(xs) + 1):
        with pytest.raises(KveduError, match="measure a point there"):
            seconds(n)


def test_few_points_predict_a_curved_generation():
    """Times curved like a real pass (weights + projections + scores), six points: sums within 1 %."""
    true_forward = lambda n: 0.02 + 2e-4 * n + 4e-8 * n * n  # noqa: E731
    true_decode = lambda s: 0.02 + 3e-6 * s  # noqa: E731
    points = (30, 60, 130, 260, 520, 1030)
    predicted = measured_rates({n: true_forward(n) for n in points}, {n: true_decode(n) for n in points})
    truth = Rates(true_forward, true_decode)
    for new in (200, 1000):
        want = speedup_cached_over_uncached(truth, 30, new)
        assert speedup_cached_over_uncached(predicted, 30, new) == pytest.approx(want, rel=0.01)


def test_measured_prefill_is_used_when_given():
    rates = measured_rates({10: 1.0, 20: 2.0}, {10: 0.1, 20: 0.1}, prefill={10: 5.0, 20: 6.0})
    assert generation_time(rates, 10, 1, cached=True) == 5.0
    assert generation_time(rates, 10, 1, cached=False) == 1.0


@pytest.mark.parametrize("call, words", [
    (lambda: interpolate({}), "at least one point"),
    (lambda: interpolate({5: 0.0}), "positive seconds"),
    (lambda: generation_time(Rates(float, float), 0, 1), "at least 1 prompt token"),
    (lambda: generation_time(Rates(float, float), 1, 0), "1 new one"),
    (lambda: step_time(LLAMA, H100, dtype="fp64"), "fp64"),
])  # fmt: skip
def test_errors_teach(call, words):
    with pytest.raises(KveduError, match=words):
        call()
