"""Data of the heads figure: which query heads share a KV head, what that saves, and what it cost where it was measured."""

from __future__ import annotations

from typing import Any, Sequence

from kvedu.analysis.known_models import known_model
from kvedu.units import binary
from kvedu.viz.configs import sizes

MODELS = ("Llama-2-7B", "Llama-3-8B", "Llama-3-70B", "Qwen2.5-7B")


def data(
    measured: Sequence[dict[str, Any]] = (),
    tokens: Sequence[str] = (),
    layer: int | None = None,
    models: Sequence[str] = MODELS,
    predict: dict[str, Any] | None = None,
    **start: Any,
) -> dict[str, Any]:
    """``measured``: the real model once per K, {"kv_heads", "perplexity", "trained" (perplexity after a short training, or
    None), "attention" [H][T][T] of ``layer`` over ``tokens``}. ``models`` are sized only. ``start`` sets controls."""
    real = [sizes("SmolLM2-135M")] if measured else []
    old, new = (known_model(name).shape for name in ("Llama-2-7B", "Llama-3-8B"))
    given = {
        "figure": "heads",
        "title": "Query heads that share KV heads",
        "models": real + [sizes(name) for name in models],
        "own": [known_model(row["name"]).shape.n_kv_heads for row in real + [{"name": name} for name in models]],
        "measured": list(measured),
        "tokens": list(tokens),
        "layer": layer,
        "start": start,
    }
    asked = predict or {
        "question": f"Llama-2-7B gives each of its {old.n_heads} query heads a KV head, {binary(2 * old.n_layers * old.elements)} "
        f"a token. Llama-3-8B has {new.n_kv_heads} KV heads. What does a token take there?",
        "choices": [binary(2 * new.n_layers * new.elements), binary(2 * old.n_layers * old.elements), binary(16 * new.n_layers * new.elements)],
        "answer": 0,
        "because": f"Query heads are not cached. {old.n_kv_heads // new.n_kv_heads} of them now read one KV head.",
    }
    return given | {"predict": asked}
