"""Data of the growing cache: a real text, token by token, and the model that wrote it.

Step 0 runs the prompt and gives the first new token; step i runs what step i needs and gives the next.
"""

from __future__ import annotations

from typing import Any, Sequence

from kvedu.analysis.flops import kv_projection_flops
from kvedu.config import ModelConfig
from kvedu.viz.configs import sizes


def data(prompt: Sequence[str], new: Sequence[str], config: ModelConfig, *, bytes_per_element: int = 4, **start: Any) -> dict[str, Any]:
    """``prompt`` and ``new`` are the texts of the tokens, ``new`` all that were generated; ``start`` sets controls
    (``step``, ``cached``)."""
    steps = len(new)
    rows = {
        cached: kv_projection_flops(config, len(prompt), steps, cached) // kv_projection_flops(config, 1, 1, True)
        for cached in (True, False)
    }
    ratio = rows[False] / rows[True]
    return {
        "figure": "growth",
        "title": "A cache that grows token by token",
        "prompt": list(prompt),
        "new": list(new),
        "model": sizes(config, "SmolLM2-135M"),
        "bytes": bytes_per_element,
        "start": start,
        "predict": {
            "question": f"A prompt of {len(prompt)} tokens, then {steps} new ones. How many times as many keys does the loop without "
            "a cache compute?",
            "choices": ["Twice as many", f"{ratio:.0f} times as many", f"{10 * ratio:.0f} times as many"],
            "answer": 1,
            "because": f"{rows[False]:,} in each layer and head, instead of {rows[True]:,}. The longer the text, the worse.",
        },
    }
