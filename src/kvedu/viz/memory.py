"""Data of the memory calculator: what models, formats and machines there are, and what weights take.

The script computes the cache and the verdict; a test holds it against ``analysis.memory`` and
``analysis.footprint`` on a grid.
"""

from __future__ import annotations

from typing import Any, Sequence

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes, weight_bytes
from kvedu.units import binary

MODELS = ("SmolLM2-135M", "Qwen2.5-7B", "Llama-2-7B", "Llama-3-8B", "Mistral-7B-v0.1", "Qwen2.5-72B", "Llama-3-70B")
MACHINES = ("laptop-CPU", "T4", "L4", "A100-40GB-SXM", "A100-80GB-SXM", "H100-SXM", "H200-SXM")


def data(models: Sequence[str] = MODELS, machines: Sequence[str] = MACHINES) -> dict[str, Any]:
    """Sizes of the models, memories of the machines (vendors' decimal bytes), and the question to begin with."""
    rows = []
    for name in models:
        known = known_model(name)
        assert known.config is not None, f"{name} has no config, so its weights cannot be counted"
        config = known.config
        groups = [
            {"layers": layers, "window": window, "elements": known.shape.elements}
            for layers, window in known.shape.layer_groups()
        ]
        weights = {str(size): weight_bytes(config, size) for size in (1, 2, 4)}
        rows.append({"name": name, "groups": groups, "weights": weights, "positions": config.max_positions})
    before, after = (known_model(name).shape for name in ("Llama-2-7B", "Llama-3-8B"))
    long, short = (kv_cache_bytes(shape, 4096, 16) for shape in (before, after))
    shares = {1: "As much", 4: "A quarter", 8: "An eighth"}
    return {
        "figure": "memory",
        "title": "Memory calculator",
        "models": rows,
        "machines": [{"name": name, "memory": hardware(name).memory} for name in machines],
        "start": {"model": "Llama-3-8B", "machine": "A100-40GB-SXM"},
        "predict": {
            "question": f"Llama-2-7B has {before.n_kv_heads} KV heads, Llama-3-8B has {after.n_kv_heads}; layers and head "
            "size are the same. 16 sequences hold 4,096 tokens each. How much cache does the newer model need of "
            "what the older one needed?",
            "choices": list(shares.values()),
            "answer": list(shares).index(long // short),
            "because": f"{binary(short)} instead of {binary(long)}: only the number of KV heads counts.",
        },
    }
