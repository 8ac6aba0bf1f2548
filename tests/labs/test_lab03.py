"""Lab 3's checks: other right answers pass, and mistakes that people make get the sentence written for them."""

import contextlib
import io
import math
import runpy
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

MASTER = Path(__file__).resolve().parents[2] / "labs" / "masters" / "03_mha_mqa_gqa.py"


@pytest.fixture(scope="module")
def lab() -> dict:
    """The solved lab's names, after it ran as a script; autograd as it was."""
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        return runpy.run_path(str(MASTER))


def sharing(kv_heads=None, head_dim=None, factor=4):
    """An answer to exercise 1 with one part changed."""

    def answer(p):
        H = p["num_attention_heads"]
        K = kv_heads(p) if kv_heads else p.get("num_key_value_heads") or H
        D = head_dim(p) if head_dim else p.get("head_dim") or p["hidden_size"] // H
        return "MHA" if K == H else "MQA" if K == 1 else "GQA", factor * p["num_hidden_layers"] * K * D

    return answer


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (sharing(), None),
        (sharing(kv_heads=lambda p: p["num_attention_heads"] if p.get("num_key_value_heads") is None else p["num_key_value_heads"]), None),
        (sharing(kv_heads=lambda p: p.get("num_key_value_heads") or 1), "are MHA, not 'MQA'"),
        (sharing(head_dim=lambda p: p["hidden_size"] // p["num_attention_heads"]), "which head size did you take"),
        (sharing(factor=2), "keys *and* values"),
        (lambda p: (sharing()(p)[0], sharing(kv_heads=lambda p: p["num_attention_heads"])(p)[1]), "it counts query heads"),
        (lambda p: (sharing()(p)[0], sharing()(p)[1] / 1), "bytes are whole"),
        (lambda p: sharing()(p)[1], "a pair (kind, bytes)"),
    ],
)
def test_sharing(lab: dict, answer, sentence: str | None) -> None:
    """C033 and C035 as mistakes of a learner."""
    judge(lambda: lab["_check_sharing"](answer), sentence)


def grouped(q, k):
    """Queries as ``[K, G, D]``."""
    return q.view(len(k), -1, q.shape[1])


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda q, k, v: sdpa(grouped(q, k)[None], k[None], v[None])[0].reshape(q.shape), None),
        (lambda q, k, v: torch.stack([((q[h] @ k[j].T) / 8).softmax(-1) @ v[j] for h in range(len(q)) for j in [h * len(k) // len(q)]]), None),
        (lambda q, k, v: (((grouped(q, k)[:, :, None] @ k[:, None].mT) / 8).softmax(-1) @ v[:, None]).reshape(q.shape), "clone made a tensor"),
        (lambda q, k, v: ((grouped(q, k) @ k.mT).softmax(-1) @ v).reshape(q.shape), "did you scale"),
        (lambda q, k, v: (((q.view(-1, len(k), 64).mT.permute(2, 0, 1) @ k.mT) / 8).softmax(-1) @ v).transpose(0, 1).reshape(q.shape), "should read"),
        (lambda q, k, v: (grouped(q, k) @ k.mT / math.sqrt(64)).softmax(-1) @ v, "the output has shape"),
    ],
)
def test_decode(lab: dict, answer, sentence: str | None) -> None:
    """C001: the wrong head is named; a copy of the keys is found whatever made it."""
    judge(lambda: lab["_check_decode"](answer), sentence)


def test_the_starting_point_copies(lab: dict) -> None:
    judge(lambda: lab["_check_decode"](lab["decode_with_copies"]), "that is a copy")


def merged(pool, order=(1, 2)):
    """An answer to exercise 3 with its pooling or order changed."""

    def answer(w, H, K, D):
        parts = w.split([H * D, K * D, K * D])
        return torch.cat([parts[0], *[pool(parts[i], K, D) for i in order]])

    return answer


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (merged(lambda x, K, D: sum(x.split(D)) / K), None),
        (merged(lambda x, K, D: x.unflatten(0, (K, D)).mean(0)), None),
        (merged(lambda x, K, D: x.view(D, K, -1).mean(1)), "mean of neighboring rows"),
        (merged(lambda x, K, D: x.view(K, D, -1).sum(0)), "sum of the heads"),
        (merged(lambda x, K, D: x[:D]), "not the mean of the three heads' keys"),
        (merged(lambda x, K, D: x.view(K, D, -1).mean(0), order=(2, 1)), "where the values belong"),
        (lambda w, H, K, D: w.clone(), "was wanted"),
        (lambda w, H, K, D: merged(lambda x, K, D: x.view(K, D, -1).mean(0))(w * 1.01, H, K, D), "they stay as they were"),
    ],
)
def test_merge(lab: dict, answer, sentence: str | None) -> None:
    judge(lambda: lab["_check_merge"](answer), sentence)


RIGHT = {"a": (32, 8), "b": None, "c": (9, 3)}, {"a": (9, 3), "c": None}


@pytest.mark.parametrize(
    ("shown", "hidden", "sentence"),
    [
        (*RIGHT, None),
        ({"a": (12, 6), "b": None, "c": (12, 4)}, {"a": (16, 4), "c": None}, None),
        ({"a": None, "b": None, "c": (9, 3)}, {"c": None}, "a passed your judgment and is wrong"),
        ({"a": (28, 4), "b": None, "c": (9, 3)}, RIGHT[1], "raises an IndexError"),
        ({"a": (9, 3), "b": None, "c": (9, 3)}, RIGHT[1], "this pair shows nothing"),
        ({"a": (32, 8), "b": (9, 3), "c": (9, 3)}, RIGHT[1], "b is right"),
        (RIGHT[0], {"a": None, "c": None}, "look again"),
        (RIGHT[0], {"a": (9, 3), "c": (8, 1)}, "is MHA or MQA"),
        (RIGHT[0], {"a": (32, 8), "c": None}, "does not hide it"),
        (RIGHT[0], {"a": (9, 3)}, "one key for each wrong version"),
    ],
)
def test_verdicts(lab: dict, shown: dict, hidden: dict, sentence: str | None) -> None:
    """C001: tiled heads and division by the wrong count, and where each hides."""
    judge(lambda: lab["_check_verdicts"](shown, hidden), sentence)


def judge(check, sentence: str | None) -> None:
    """Run a check: it passes, or fails with the sentence."""
    with torch.no_grad():
        if sentence is None:
            check()
        else:
            with pytest.raises(AssertionError) as failed:
                check()
            assert sentence in str(failed.value)
