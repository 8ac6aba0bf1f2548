"""Data of the decision tool: ways to make a cache smaller, against one machine's memory and one limit on the step.

The script computes bytes and times; a test holds it against ``analysis.strategies`` on a grid. What a way loses is
measured on the real model and handed in.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Mapping, Sequence

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.strategies import HOST_BANDWIDTH, Strategy, options, strategies
from kvedu.analysis.weights import weight_bytes

MODELS = ("Llama-3-8B", "Llama-2-7B", "Qwen2.5-7B", "Qwen2.5-72B", "SmolLM2-135M")
MACHINES = ("L4", "A100-40GB-SXM", "A100-80GB-SXM", "H100-SXM", "H200-SXM")
RESERVE = 0.1


def data(
    losses: Mapping[str, float], models: Sequence[str] = MODELS, machines: Sequence[str] = MACHINES, source: str = "", **start: Any
) -> dict[str, Any]:
    """The tool's data. ``losses``: strategy → share of recall questions lost against the full cache, as measured.

    ``start`` sets controls: model, machine, context, batch, limit (milliseconds per token, 0 for none), trained.
    """
    few, _, four, two, *_ = options(known_model("Llama-3-8B").config, hardware("L4"), 8192, 1)
    return {
        "figure": "strategy",
        "title": "Which smaller cache?",
        "models": [_model(name) for name in models],
        "machines": [{"name": h.name, "memory": h.memory, "bandwidth": h.bandwidth} for h in map(hardware, machines)],
        "strategies": [strategy_json(s) for s in strategies(known_model("Llama-3-8B").config.D)],
        "losses": dict(losses),
        "host": HOST_BANDWIDTH,
        "reserve": RESERVE,
        "start": {"model": "Llama-3-8B", "machine": "L4"} | start,
        "predict": {
            "question": f"{few.most} conversations of 8,192 tokens fit beside Llama-3-8B on an L4 in bf16. How many fit with keys and values in 2 bit?",
            "choices": [f"{8 * few.most}, eight times as many", f"{two.most}", f"{four.most}"],
            "answer": 1,
            "because": "Two bits come with a scale and a zero point for every 32 elements, three bits in all, and the last 128 tokens stay "
            f"as they are: {two.most / few.most:.1f} times as many.",
        },
    } | ({"source": source} if source else {})  # fmt: skip


def _model(name: str) -> dict[str, Any]:
    known = known_model(name)
    assert known.config is not None, f"{name} has no config, so its weights cannot be counted"
    return {
        "name": name,
        "weights": weight_bytes(known.config),
        "layers": known.config.L,
        "groups": [{"layers": layers, "window": window} for layers, window in known.shape.layer_groups()],
        "vectors": [list(pair) for pair in known.shape.vectors],
        "heads": known.shape.n_kv_heads,
        "positions": known.config.max_positions,
    }


def strategy_json(strategy: Strategy) -> dict[str, Any]:
    """A strategy as the script takes it; an int8 group of None spans the head, whatever its size."""
    made = asdict(strategy)
    for side in ("keys", "values"):
        if strategy.name == "int8":
            made[side]["group"] = None
    return made
