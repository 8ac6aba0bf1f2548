"""Measured points for the roofline: steps of SmolLM2 on the processor that ran this, and kernels on a GPU where a row of one is stored.

Run it again after `make gpu`: ``make traces NAME=16_roofline``.
"""

import time
from typing import Any

import torch

import kvedu
from kvedu import StaticCache, machine, texts
from kvedu.analysis.flops import prefill_cost, total
from kvedu.book.gpu_rows import gpu_row
from kvedu.viz import roofline

NAME = "CPU of the book"
GPUS = {"H200": "H200-SXM", "H100": "H100-SXM", "A100": "A100-80GB-SXM", "L4": "L4"}
STEPS = (("decode, 1 sequence", 1, 1, 256), ("decode, 16 sequences", 16, 1, 256), ("prefill, 256 tokens", 1, 256, 0))
"""Name, sequences, new tokens each, context."""
SIZE = 2


def seconds_of(model: Any, sequences: int, new: int, context: int, ids: list[int]) -> float:
    """Best time of one step in bf16."""
    best = float("inf")
    for _ in range(5):
        cache = StaticCache(model.config, max_sequences=sequences, max_length=context + new, dtype=torch.bfloat16)
        seqs = [cache.add() for _ in range(sequences)]
        if context:
            with cache.step({seq: context for seq in seqs}) as view:
                model(torch.tensor(ids[:context] * sequences), view, view.last_rows)
        start = time.perf_counter()
        with cache.step({seq: new for seq in seqs}) as view:
            model(torch.tensor(ids[:new] * sequences), view, view.last_rows)
        best = min(best, time.perf_counter() - start)
    return best


def gpu_points() -> list[dict[str, Any]]:
    """Decode and prefill of the kernel bench, where it ran on a GPU that the figure knows."""
    row = gpu_row("kernels")
    known = next((name for word, name in GPUS.items() if row and word in row.machine["gpu"]), None)
    cases = row["cases"] if row and known else []
    return [
        {"name": case["name"], "machine": known, "intensity": case["flops"] / case["bytes"], "flops": 1e3 * case["flops"] / case["ms"]}
        for case in cases if case["name"].startswith(("decode", "prefill")) and "over" not in case["name"]
    ]  # fmt: skip


def run() -> dict[str, Any]:
    """The figure's data."""
    limits = machine.measure(dtypes=("bf16",))
    model = kvedu.load("smollm2-135m", dtype=torch.bfloat16, device="cpu").pack()
    ids, points = model.tokenizer.encode(texts.read("prose"))[:256], []
    with torch.inference_mode():
        for name, sequences, new, context in STEPS:
            cost = total(prefill_cost(model.config, new, context, sequences, SIZE))
            seconds = seconds_of(model, sequences, new, context, ids)
            points.append({"name": name, "machine": NAME, "intensity": round(cost.intensity, 3), "flops": round(cost.flops / seconds)})
    data = roofline.data(points=[*points, *gpu_points()], model="SmolLM2-135M", machine=NAME, context=256)
    data["machines"].insert(0, {"name": NAME, "flops": {"bf16": limits.peak("bf16")}, "bandwidth": limits.bandwidth, "memory": limits.memory})
    return data | {"source": f"SmolLM2-135M-Instruct in bf16, {limits.source}"}
