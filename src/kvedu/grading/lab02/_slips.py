"""Lab 2, exercise 2: the three calculators, and what a model must be to hold them against a cache that exists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kvedu.analysis.known_models import known_model
from kvedu.caches.static import StaticCache
from kvedu.grading.exercise import Case
from kvedu.units import GiB, binary

NUMBERS = ("layers", "width", "heads", "kv_heads", "head_dim", "tokens")


def said(name: str, model: dict[str, int]) -> float:
    """What a calculator says of a model, in bytes."""
    size = 2 * model["layers"] * model["tokens"] * 2
    if name == "a":
        return size * model["kv_heads"] * (model["width"] // model["heads"])
    if name == "b":
        return size * (model["heads"] // model["kv_heads"]) * model["head_dim"]
    return size * model["kv_heads"] * model["head_dim"] / 10**9 * GiB


def held(model: dict[str, int]) -> int:
    """Bytes of the model's bf16 cache, built for real."""
    like = known_model("Llama-3-8B").config
    shape = replace(
        like, n_layers=model["layers"], width=model["width"], n_heads=model["heads"], n_kv_heads=model["kv_heads"],
        head_dim=model["head_dim"], rope=replace(like.rope, dim=model["head_dim"]),
    )  # fmt: skip
    return StaticCache(shape, max_length=model["tokens"], dtype=torch.bfloat16).nbytes


def names_are(wanted: tuple[str, ...], lesson: str) -> Any:
    """A rule: a dict with these calculators."""

    def rule(case: Case, seen: Any) -> str | None:
        if type(seen) is not dict or set(seen) != set(wanted):
            return f"a dict with the keys {', '.join(wanted)} was wanted{lesson}"
        return None

    return rule


def six_numbers(case: Case, seen: dict[str, Any]) -> str | None:
    """A rule: every model is a dict with six whole numbers above 0."""
    for name, model in seen.items():
        if type(model) is not dict or set(model) != set(NUMBERS):
            return f"{name}: a model is a dict of six numbers: {', '.join(NUMBERS)}"
        if not all(type(n) is int and n > 0 for n in model.values()):
            return f"{name}: all six are whole numbers above 0"
    return None


def shared_evenly(case: Case, seen: dict[str, dict[str, int]]) -> str | None:
    """A rule: the query heads divide among the KV heads, and the head size can be turned."""
    for name, model in seen.items():
        if model["heads"] % model["kv_heads"]:
            return f"{name}: {model['heads']} query heads cannot share {model['kv_heads']} KV heads evenly"
        if model["head_dim"] % 2:
            return f"{name}: a head size is even, since RoPE turns pairs; {model['head_dim']} came"
    return None


def can_be_built(case: Case, seen: dict[str, dict[str, int]]) -> str | None:
    """A rule: the cache takes at most a quarter of a GiB."""
    for name, model in seen.items():
        size = 4 * model["layers"] * model["kv_heads"] * model["head_dim"] * model["tokens"]
        if size > GiB // 4:
            return f"{name}: this cache would take {binary(size)}; fewer layers or tokens show the same"
    return None
