"""Needles at five depths of two lengths, through every eviction policy at half and at a quarter of the tokens."""

from functools import partial
from typing import Any

import torch

import kvedu
from kvedu import ConcatCache, EvictingCache, QuantizedCache, StreamingCache
from kvedu.caches import scores
from kvedu.model.dtype import fast_dtype
from kvedu.viz import needles

LENGTHS, BUDGETS, N = (256, 512), (50, 25), 2


def makes(budget: int) -> dict[str, Any]:
    """Caches that keep so many tokens."""
    return {
        "window with sinks": partial(StreamingCache, window=budget - 4, sinks=4),
        "SnapKV": partial(EvictingCache, budget=budget, score=scores.snapkv, recent=min(32, budget)),
        "H2O": partial(EvictingCache, budget=budget, score=scores.h2o, recent=budget // 2),
        "TOVA": partial(EvictingCache, budget=budget, score=scores.tova),
        "key norm": partial(EvictingCache, budget=budget, score=scores.key_norm, sinks=4, recent=8),
        "random": partial(EvictingCache, budget=budget, score=scores.random, sinks=4, recent=8),
    }


def run() -> dict[str, Any]:
    """The grids; some six minutes of one core."""
    dtype, _ = fast_dtype("cpu")
    model = kvedu.load(dtype=dtype, device="cpu").pack()

    @torch.inference_mode()
    def grids(make: Any, aware: bool) -> list[list[float]]:
        return needles.grid(model, {length: partial(make(length), dtype=dtype) for length in LENGTHS}, n=N, aware=aware)

    methods = [{"name": "every token", "grids": {"100": {"blind": grids(lambda length: ConcatCache, False)}}}]
    methods.append({"name": "every token, 2 bit", "grids": {"100": {"blind": grids(lambda length: partial(QuantizedCache.kivi, bits=2, residual=32), False)}}})
    for name in makes(100):
        kinds = {
            str(share): {kind: grids(lambda length, share=share, name=name: makes(length * share // 100)[name], kind == "aware") for kind in ("blind", "aware")}
            for share in BUDGETS
        }
        methods.append({"name": name, "grids": kinds})
    return needles.data(methods, LENGTHS, N, method="SnapKV")
