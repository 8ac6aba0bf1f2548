"""The heads figure shares as the model does, and sizes as ``kvedu.analysis`` does."""

import json
from pathlib import Path

import pytest
import torch

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.shape import AttentionShape
from kvedu.kernels.attention import attention_grouped
from kvedu.viz import heads, still
from kvedu.viz.configs import sizes
from kvedu.viz.node import evaluate

STORED = json.loads((Path(__file__).resolve().parents[2] / "book" / "figures" / "03_heads.json").read_text("utf-8"))


@pytest.mark.parametrize(("H", "K"), [(9, 3), (9, 9), (9, 1), (32, 8), (64, 8), (12, 4)])
def test_who_shares_whom(H: int, K: int) -> None:
    """C001: neighbors share; the library's attention is asked with values that name their head."""
    q_BTHD, k_BKSD = torch.zeros(1, 1, H, 2), torch.zeros(1, K, 3, 2)
    v_BKSD = torch.arange(K).float()[None, :, None, None].expand(1, K, 3, 2).contiguous()
    wanted = attention_grouped(q_BTHD, k_BKSD, v_BKSD, None, causal=False).view(H, 2)
    found = evaluate("heads", [("headOf", [q, H, K]) for q in range(H)])
    assert found == [round(x) for x in wanted[:, 0].tolist()]


def test_bytes_on_a_grid() -> None:
    for name in heads.MODELS:
        shape = known_model(name).shape
        calls = evaluate("heads", [("divisors", [shape.n_heads])])[0]
        found = evaluate("heads", [("tokenBytes", [sizes(name), K]) for K in calls])
        kinds = evaluate("heads", [("kind", [shape.n_heads, K]) for K in calls])
        for K, n_bytes, kind in zip(calls, found, kinds, strict=True):
            other = AttentionShape(shape.n_layers, shape.n_heads, K, shape.head_dim)
            assert n_bytes == kv_bytes_per_token(other) and kind == other.kind


def test_what_was_measured_is_shown() -> None:
    assert [row["kv_heads"] for row in STORED["measured"]] == [9, 3, 1]
    merged = STORED["measured"][2]
    said = still("heads", STORED, {"kv": 1}).say
    assert f"Measured perplexity {round(merged['perplexity']):,}" in said and "its heads merged" in said
    assert "the model as it is" in still("heads", STORED).say
    assert "heads are only copied" in still("heads", STORED, {"kv": 9}).say
    assert "says nothing about quality" in still("heads", STORED, {"model": "Llama-3-8B", "kv": 2}).say


def test_attention_rows_sum_to_one() -> None:
    """Two decimals are kept, so a row of n weights may be off by n halves of a hundredth."""
    for row in STORED["measured"]:
        assert len(row["attention"]) == 9
        for head in row["attention"]:
            for t, weights in enumerate(head):
                assert len(weights) == t + 1 and abs(sum(weights) - 1) <= 0.005 * (t + 1) + 1e-9
    nine, three, one = (row["attention"] for row in STORED["measured"])
    assert nine == three != one, "copied heads attend alike; merged heads do not"


def test_a_number_of_heads_that_does_not_divide_is_mended() -> None:
    shown = still("heads", heads.data(), {"model": "Llama-3-8B", "kv": 9})
    assert shown.state["kv"] == 8
