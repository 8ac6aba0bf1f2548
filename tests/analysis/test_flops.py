"""FLOPs and bytes against sums written out token by token, and against PyTorch's own counter."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from kvedu.analysis.flops import (
    PARTS,
    decode_cost,
    generation_cost,
    kv_projection_flops,
    prefill_cost,
    total,
    uncached_step_cost,
)
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token, kv_cache_bytes, weights_read
from kvedu.errors import KveduError

SMOL = known_model("SmolLM2-135M").config
WINDOWED = replace(SMOL, n_layers=3, sliding_window=5, windowed_layers=(True, False, True))


@given(st.integers(1, 12), st.integers(0, 12), st.booleans())
def test_attention_equals_the_count_of_its_pairs(tokens, cached, windowed):
    """Every query of every layer, every key it sees: 4 D FLOPs per head; each seen key is read once."""
    config = WINDOWED if windowed else SMOL
    pairs = keys = 0
    for layer in range(config.L):
        window = config.window(layer) or 10**9
        seen = set()
        for query in range(cached, cached + tokens):
            visible = range(max(0, query - window + 1), query + 1)
            pairs += len(visible)
            seen.update(visible)
        keys += len(seen)
    cost = prefill_cost(config, tokens, cached)["attention"]
    assert cost.flops == 4 * config.H * config.D * pairs
    assert cost.read == keys * 2 * config.K * config.D * 2
    assert cost.written == tokens * kv_bytes_per_token(config)


def test_matrix_parts_by_hand():
    """SmolLM2-135M, 10 tokens: 2 x 10 x parameters; the head for the last token or for all."""
    parts = prefill_cost(SMOL, 10)
    assert tuple(parts) == PARTS
    assert parts["projections"].flops == 20 * 30 * (576 * 576 * 2 + 576 * 192 * 2)
    assert parts["mlp"].flops == 20 * 30 * 3 * 576 * 1536
    assert parts["head"].flops == 2 * 576 * 49_152
    assert prefill_cost(SMOL, 10, all_logits=True)["head"].flops == 10 * parts["head"].flops
    assert parts["mlp"].read == 30 * 3 * 576 * 1536 * 2


def test_equals_pytorchs_flop_counter():
    """A full pass of transformers' Llama, counted by torch: dense scores, so causal=False, all logits."""
    transformers = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    from kvedu.config_hf import config_from_hf

    raw = dict(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, intermediate_size=80,
        vocab_size=99, max_position_embeddings=64, head_dim=16,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**raw, attn_implementation="eager")).eval()
    config = config_from_hf({"model_type": "llama", **raw})
    for batch, tokens in ((1, 7), (3, 20)):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.zeros(batch, tokens, dtype=torch.long), use_cache=False)
        rope_outer = 2 * batch * tokens * config.D // 2  # transformers makes its angles by a matrix product
        ours = total(prefill_cost(config, tokens, 0, batch, causal=False, all_logits=True)).flops
        assert counter.get_total_flops() == pytest.approx(ours + rope_outer, rel=1e-3)
        assert counter.get_total_flops() - ours <= rope_outer


def test_decode_reads_weights_once_and_the_cache_of_each_sequence():
    for batch, context in ((1, 0), (1, 100), (16, 1000)):
        step = total(decode_cost(SMOL, context, batch))
        rows = batch * SMOL.M * 2
        assert step.read == weights_read(SMOL) + rows + kv_cache_bytes(SMOL, context + 1, batch)
        assert step.written == batch * kv_bytes_per_token(SMOL)
    narrow = decode_cost(SMOL, 100, kv_bytes_per_element=1)["attention"]
    assert narrow.bytes * 2 == decode_cost(SMOL, 100)["attention"].bytes


def test_kv_projection_work_is_linear_with_a_cache_and_quadratic_without():
    """Claim A1.1: doubling n doubles it, or quadruples it; and it is the projections' share, summed."""
    per_token = 2 * 30 * 576 * 2 * 192
    assert kv_projection_flops(SMOL, 1, 1000, True) == 1000 * per_token
    assert kv_projection_flops(SMOL, 1, 1000, False) == 1000 * 1001 // 2 * per_token
    for cached, ratio in ((True, 2), (False, 4)):
        grown = kv_projection_flops(SMOL, 1, 20_000, cached) / kv_projection_flops(SMOL, 1, 10_000, cached)
        assert grown == pytest.approx(ratio, rel=1e-3)
    for cached in (True, False):  # K and V are 2K of the 2H + 2K head widths of all projections
        share = 2 * SMOL.K / (2 * SMOL.H + 2 * SMOL.K)
        whole = generation_cost(SMOL, 7, 9, cached)["projections"].flops
        assert kv_projection_flops(SMOL, 7, 9, cached) == pytest.approx(share * whole)


def test_scores_stay_quadratic_with_a_cache():
    """What A1.1 leaves out: attention's FLOPs still grow fourfold when n doubles."""
    short, long = (generation_cost(SMOL, 1, n)["attention"].flops for n in (500, 1000))
    assert long / short == pytest.approx(4, rel=0.01)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3))
def test_chunked_prefill_does_the_same_attention_and_reads_weights_again(first, second, batch):
    whole = prefill_cost(WINDOWED, first + second, 0, batch)
    a, b = prefill_cost(WINDOWED, first, 0, batch), prefill_cost(WINDOWED, second, first, batch)
    for part in ("projections", "attention", "mlp"):
        assert a[part].flops + b[part].flops == whole[part].flops
    assert a["mlp"].read + b["mlp"].read == 2 * whole["mlp"].read
    assert a["attention"].written + b["attention"].written == whole["attention"].written


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_generation_is_the_sum_of_its_steps(prompt, new, cached):
    parts = generation_cost(WINDOWED, prompt, new, cached)
    if cached:
        steps = [prefill_cost(WINDOWED, prompt)] + [prefill_cost(WINDOWED, 1, prompt + i) for i in range(new - 1)]
    else:
        steps = [uncached_step_cost(WINDOWED, prompt + i) for i in range(new)]
    assert total(parts) == sum(total(step) for step in steps)
    if cached:  # same FLOPs as one pass over everything that is run, but for the heads
        once = prefill_cost(WINDOWED, prompt + new - 1)
        for part in ("projections", "attention", "mlp"):
            assert parts[part].flops == once[part].flops
        assert parts["head"].flops == new * once["head"].flops


@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 5))
def test_laws(tokens, cached, batch):
    here = prefill_cost(WINDOWED, tokens, cached, batch)
    dense = prefill_cost(WINDOWED, tokens, cached, batch, causal=False)
    assert dense["attention"].flops >= here["attention"].flops
    assert total(prefill_cost(WINDOWED, tokens, cached, 2 * batch)).flops == 2 * total(here).flops
    assert total(prefill_cost(WINDOWED, tokens + 1, cached, batch)).flops > total(here).flops
    assert total(prefill_cost(WINDOWED, tokens, cached + 1, batch)).flops >= total(here).flops
    assert uncached_step_cost(WINDOWED, tokens)["attention"].bytes == 0


@pytest.mark.parametrize("call", [
    lambda: prefill_cost(SMOL, 0), lambda: prefill_cost(SMOL, 1, -1), lambda: decode_cost(SMOL, 1, 0),
    lambda: generation_cost(SMOL, 1, 0), lambda: kv_projection_flops(SMOL, 0, 1, True),
])  # fmt: skip
def test_impossible_steps_are_refused(call):
    with pytest.raises(KveduError, match="at least 1"):
        call()
