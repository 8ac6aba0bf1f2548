"""Data of the launches figure: what a decode step launches, counted on the meta device, and the bytes that each must move."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Sequence

import torch

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.caches.paged import PagedCache
from kvedu.config import ModelConfig
from kvedu.kernels import attention, rmsnorm, rope_write, swiglu
from kvedu.kernels.launches import Launched, launches
from kvedu.model.transformer import Transformer
from kvedu.units import Cost

MODELS = ("SmolLM2-135M", "Llama-3-8B")
MACHINES = ("L4", "A100-80GB-SXM", "H200-SXM")
Bytes = tuple[str, float, float, float]
"""Name, and bytes: whatever the batch, for each sequence, for each sequence and cached token."""


def step(config: ModelConfig, batch: int, *, fused: bool) -> list[Launched]:
    """What one decode step of ``batch`` sequences launches over a paged cache."""
    with torch.device("meta"), torch.inference_mode():
        model = Transformer(config).eval().to(torch.bfloat16)
        cache = PagedCache(config, n_pages=4 * batch, page_size=16, dtype=torch.bfloat16, device="meta")
        seqs = [cache.add() for _ in range(batch)]
        with cache.step(dict.fromkeys(seqs, 8)) as view, launches():
            model.hidden(torch.empty(8 * batch, dtype=torch.int64), view)
        with cache.step(dict.fromkeys(seqs, 1)) as view, launches() as found:
            model.logits(model.hidden(torch.empty(batch, dtype=torch.int64), view, fused=fused))
    return found


def parts(config: ModelConfig, *, fused: bool) -> dict[str, Any]:
    """A step as launches before the layers that are alike, one such layer, and those behind; ``alike`` says how many there are."""
    one, two = ([*step(replace(config, n_layers=4), batch, fused=fused)] for batch in (1, 2))
    kinds = [(each.name, each.bytes) for each in one]
    length = len(kinds) - len(step(replace(config, n_layers=3), 1, fused=fused))
    begin = next(i for i in range(len(kinds)) if kinds[i : i + length] == kinds[i + length : i + 2 * length])
    alike = next(n for n in range(4, 0, -1) if kinds[begin : begin + n * length] == n * kinds[begin : begin + length])
    sized = [_bytes(config, a, b, fused) for a, b in zip(one, two)]
    return {
        "before": sized[:begin], "layer": sized[begin : begin + length], "behind": sized[begin + alike * length :],
        "alike": config.L - (4 - alike),
    }  # fmt: skip


def _bytes(config: ModelConfig, one: Launched, two: Launched, fused: bool) -> Bytes:
    if one.bytes is not None and two.bytes is not None:
        return one.name, 2 * one.bytes - two.bytes, two.bytes - one.bytes, 0
    cost = _costs(config, fused)[one.name]
    first, second, longer = cost(1, 0).bytes, cost(2, 0).bytes, cost(1, 1).bytes
    return one.name, 2 * first - second, second - first, longer - first


def _costs(config: ModelConfig, fused: bool) -> dict[str, Any]:
    """Bytes of the library's kernels by their own formulas: of (sequences, cached tokens of each)."""

    def attend(batch: int, old: int) -> Cost:
        return Cost(0, *(batch * x for x in _read_written(attention.cost(1, old, config.H, config.K, config.D))))

    norm = rmsnorm.add_cost if fused else rmsnorm.cost
    return {
        "attend": attend,
        "norm_rows": lambda batch, old: norm(batch, config.M),
        "turn_and_write": lambda batch, old: rope_write.cost(batch, config.H, config.K, config.D),
        "gate": lambda batch, old: swiglu.cost(batch, config.F),
    }


def _read_written(cost: Cost) -> tuple[float, float]:
    return cost.read, cost.written


def unrolled(made: dict[str, Any], batch: int, context: int) -> list[float]:
    """Bytes of every launch of a step, in order."""
    sized = partial(_sized, batch=batch, context=context)
    return [*map(sized, made["before"]), *([*map(sized, made["layer"])] * made["alike"]), *map(sized, made["behind"])]


def _sized(one: Bytes, batch: int, context: int) -> float:
    return one[1] + batch * (one[2] + context * one[3])


def step_us(times_us: Sequence[float], launch_us: float, gap_us: float, recorded: bool) -> tuple[float, float]:
    """How long a step takes, and how long of it the device computes, in microseconds.

    One by one, the host asks for a kernel every ``launch_us``; recorded, it asks once. The device runs a kernel when it has been asked for
    and the one before is done, and needs ``gap_us`` from one to the next.
    """
    now = 0.0
    for number, took in enumerate(times_us, 1):
        free = now + gap_us if number > 1 else 0.0
        now = max(free, launch_us if recorded else number * launch_us) + took
    return now, sum(times_us)


def data(models: Sequence[str] = MODELS, machines: Sequence[str] = MACHINES, **start: Any) -> dict[str, Any]:
    """``start`` sets controls: model, machine, batch, context, launch, gap, recorded, fused."""
    made = []
    for name in models:
        config = known_model(name).config
        made.append({"name": name, "apart": parts(config, fused=False), "fused": parts(config, fused=True)})
    first = made[0]
    count = len(unrolled(first["apart"], 1, 0))
    took, busy = step_us([1e6 * x / hardware(machines[-1]).bandwidth for x in unrolled(first["apart"], 1, 512)], 5, 1, False)
    return {
        "figure": "launches",
        "title": "Host and device in a decode step",
        "models": made,
        "machines": [{"name": name, "bandwidth": hardware(name).bandwidth} for name in machines],
        "start": start,
        "predict": {
            "question": f"{first['name']} decodes one token on an {machines[-1]}. The step has {count} launches of 5 µs each. For which share of the time does the device move bytes?",
            "choices": ["nearly all of it", "about a third", f"about {busy / took:.0%}"],
            "answer": 2,
            "because": f"The launches take {took / 1e3:.1f} ms, and all bytes of the step could be moved in {busy / 1e3:.2f} ms. The device waits for its host.",
        },
    }
