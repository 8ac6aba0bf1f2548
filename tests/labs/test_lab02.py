"""Lab 2's checks: other right answers pass, and mistakes that people make get the sentence written for them."""

import contextlib
import io
import runpy
from pathlib import Path

import pytest

MASTER = Path(__file__).resolve().parents[2] / "labs" / "masters" / "02_memory_math.py"


@pytest.fixture(scope="module")
def lab() -> dict:
    """The solved lab's names, after it ran as a script."""
    with contextlib.redirect_stdout(io.StringIO()):
        return runpy.run_path(str(MASTER))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda c, b: c.L * c.K * c.D * b * 2, None),
        (lambda c, b: sum(2 * c.n_kv_heads * c.head_dim for _ in range(c.n_layers)) * b, None),
        (lambda c, b: c.L * c.K * c.D * b, "a key and a value"),
        (lambda c, b: 2 * c.K * c.D * b, "one layer's share"),
        (lambda c, b: 2 * c.L * c.H * c.D * b, "do you count query heads"),
        (lambda c, b: 2 * c.L * c.K * (c.M // c.H) * b, "takes the head size for width / heads"),
        (lambda c, b: 2 * c.L * c.G * c.D * b, "the queries that share a KV head"),
        (lambda c, b: 2 * c.L * c.K * c.D * 2, "do you use bytes_per_element"),
        (lambda c, b: 2 * c.L * c.K * c.D * b / 1, "bytes are whole"),
        (lambda c, b: 2 * c.L * c.K * c.D * b + b * b * b, "twice as much"),
    ],
)
def test_bytes_per_token(lab: dict, answer, sentence: str | None) -> None:
    """C033, C035 as mistakes of a learner."""
    judge(lambda: lab["_check_bytes_per_token"](answer), sentence)


SMOL = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
OWN = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)


@pytest.mark.parametrize(
    ("show", "hide", "sentence"),
    [
        ({"a": OWN, "b": OWN, "c": OWN}, {"a": SMOL, "b": SMOL}, None),
        ({"a": OWN, "b": OWN, "c": SMOL}, {"a": OWN | {"head_dim": 16}, "b": OWN | {"kv_heads": 2}}, None),
        ({"a": SMOL, "b": OWN, "c": OWN}, {"a": SMOL, "b": SMOL}, "calculator a is right on this model"),
        ({"a": OWN, "b": SMOL, "c": OWN}, {"a": SMOL, "b": SMOL}, "calculator b is right on this model"),
        ({"a": OWN, "b": OWN, "c": OWN}, {"a": SMOL, "b": OWN}, "does not hide the slip"),
        ({"a": OWN, "b": OWN, "c": OWN}, {"a": SMOL, "b": SMOL, "c": SMOL}, "no model hides c"),
        ({"a": OWN | {"kv_heads": 3}, "b": OWN, "c": OWN}, {"a": SMOL, "b": SMOL}, "cannot share 3 KV heads"),
        ({"a": OWN | {"tokens": 10**9}, "b": OWN, "c": OWN}, {"a": SMOL, "b": SMOL}, "fewer layers or tokens"),
        ({"a": OWN | {"tokens": 0}, "b": OWN, "c": OWN}, {"a": SMOL, "b": SMOL}, "whole numbers above 0"),
        ({"a": {"layers": 2}, "b": OWN, "c": OWN}, {"a": SMOL, "b": SMOL}, "six numbers"),
    ],
)
def test_slips(lab: dict, show: dict, hide: dict, sentence: str | None) -> None:
    """C033, C035, C036."""
    judge(lambda: lab["_check_slips"](show, hide), sentence)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda g, w, t, n, reserve=0.1: max(0, int((g - g * reserve - w) / (t * n))), None),
        (lambda g, w, t, n, reserve=0.1: int(max(0, g * (1 - reserve) - w) // (n * t)), None),
        (lambda g, w, t, n, reserve=0.1: int(g * (1 - reserve) // (t * n)), "six users fit exactly"),
        (lambda g, w, t, n, reserve=0.1: max(0, round((g * (1 - reserve) - w) / (t * n))), "round down"),
        (lambda g, w, t, n, reserve=0.1: max(0, int((g - w) // (t * n))), "in reserve"),
        (lambda g, w, t, n, reserve=0.1: max(0, int((g - w) * (1 - reserve) // (t * n))), "in reserve"),
        (lambda g, w, t, n, reserve=0.1: int((g * (1 - reserve) - w) // (t * n)), "never a negative number"),
        (lambda g, w, t, n, reserve=0.1: max(0, (g * (1 - reserve) - w) // (t * n)), "users are whole"),
    ],
)
def test_users(lab: dict, answer, sentence: str | None) -> None:
    judge(lambda: lab["_check_users"](answer), sentence)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda s, n: 4 * s.n_layers * s.n_kv_heads * s.head_dim * n, "mind its window"),
        (lambda s, n: 4 * s.n_layers * s.n_heads * s.head_dim * n, "mind its KV heads"),
        (lambda s, n: 4 * s.n_layers * s.n_kv_heads * s.head_dim * min(n, s.window or n), "mind its window"),
    ],
)
def test_zoo(lab: dict, answer, sentence: str) -> None:
    """C038's kind: a window or a latent that is forgotten."""
    judge(lambda: lab["_check_zoo"](answer), sentence)


def judge(check, sentence: str | None) -> None:
    """Run a check: it passes, or fails with the sentence."""
    if sentence is None:
        check()
    else:
        with pytest.raises(AssertionError) as failed:
            check()
        assert sentence in str(failed.value)
