"""Lab 2, exercise 1: bytes that one more token adds to the cache."""

from __future__ import annotations

from dataclasses import replace

import torch

from kvedu.analysis.known_models import known_model
from kvedu.caches.static import StaticCache
from kvedu.config import ModelConfig
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

DTYPES = {2: torch.bfloat16, 4: torch.float32}
PLACES = 4


def cases(fresh: Fresh) -> list[Case]:
    """MHA, GQA and MQA, a head size of its own, and models that nobody has published."""
    smol, qwen = known_model("SmolLM2-135M").config, known_model("Qwen3-4B").config
    models = {
        "SmolLM2 with 9 KV heads (MHA)": smol.with_kv_heads(9),
        "SmolLM2 (GQA, 3 KV heads)": smol,
        "SmolLM2 with 1 KV head (MQA)": smol.with_kv_heads(1),
        "Qwen3-4B (GQA, heads of 128)": qwen,
    }
    for _ in range(3):
        K, G, D, L = fresh.integer(2, 5), fresh.choice((2, 6, 7)), fresh.choice((24, 40, 80)), fresh.integer(3, 9)
        rope = replace(smol.rope, dim=D)
        made = replace(smol, n_layers=L, n_heads=K * G, n_kv_heads=K, head_dim=D, width=64 * K * G, rope=rope)
        models[f"a model with L={L}, H={K * G}, K={K}, D={D}, M={made.M}"] = made
    return [Case(f"{name}, {size} bytes per element", (model, size)) for name, model in models.items() for size in DTYPES]


def held(config: ModelConfig, bytes_per_element: int) -> int:
    """Bytes per token of a cache that exists."""
    return StaticCache(config, max_length=PLACES, dtype=DTYPES[bytes_per_element]).nbytes // PLACES


EXERCISE = Exercise(
    title="Bytes per token",
    read="book/02-memory-math",
    hint="In each layer, a token leaves one key and one value for every KV head. How long is each, and how many layers are there?",
    checked="equal to caches that exist, for MHA, GQA and MQA, in fp32 and bf16, and for three models made up for this check",
    cases=cases,
    right=held,
    mistakes=(
        Mistake(lambda c, b: c.L * c.K * c.D * b, "it is half of it; a token leaves a key *and* a value"),
        Mistake(lambda c, b: 2 * c.K * c.D * b, "it is one layer's share; the cache has L layers"),
        Mistake(lambda c, b: 2 * c.L * c.H * c.D * b, "query heads are counted; G of them share one KV head, and only KV heads are kept"),
        Mistake(lambda c, b: 2 * c.L * c.K * (c.M // c.H) * b, "the head size is taken for width / heads; the config says what it is"),
        Mistake(lambda c, b: 2 * c.L * c.G * c.D * b, "G heads are counted, the queries that share a KV head; the cache has K"),
        Mistake(lambda c, b: 2 * c.L * c.M * b, "the whole width is counted; keys and values have K heads of D numbers"),
        Mistake(lambda c, b: 2 * c.L * c.K * c.D * 2, "two bytes are taken for every element; use bytes_per_element"),
        Mistake(lambda c, b: 2 * c.L * c.K * c.D, "elements are counted, not bytes; use bytes_per_element"),
    ),
)
