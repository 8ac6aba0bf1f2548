"""Data of the latency-throughput explorer: what a server of many sequences trades for what."""

from __future__ import annotations

from typing import Any, Sequence

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.serving import server
from kvedu.viz.configs import limits, sizes

MODELS = ("Llama-3-8B", "Qwen2.5-72B", "SmolLM2-135M")
MACHINES = ("L4", "A100-80GB-SXM", "H100-SXM", "H200-SXM")


def data(
    models: Sequence[str] = MODELS, machines: Sequence[str] = MACHINES, points: Sequence[dict[str, Any]] = (), **start: Any
) -> dict[str, Any]:
    """The explorer's data; each machine must have a bf16 rate.

    ``points`` adds measured or simulated ones: {"name", "model", "machine", "tokens_per_s", "tpot_s"}. ``start`` sets
    controls: model, machine, prompt, output, running, slo (milliseconds per output token).
    """
    chat = server(known_model("Llama-3-8B").config, hardware("A100-80GB-SXM"), prompt=512, output=256)
    few, many = (chat.throughput(running) / chat.throughput(1) for running in (8, 64))
    slower = chat.step(8) / chat.step(1)
    return {
        "figure": "tradeoff",
        "title": "Latency against throughput",
        "models": [sizes(name) for name in models],
        "machines": [limits(name) for name in machines],
        "points": list(points),
        "start": {"model": "Llama-3-8B", "machine": "A100-80GB-SXM"} | start,
        "predict": {
            "question": "Llama-3-8B on an A100 serves 1 sequence at a time, then 8 together. What happens to the time that "
            "each waits for a token?",
            "choices": ["It grows eightfold", "It grows by about half", f"It grows by about {100 * (slower - 1):.0f} %"],
            "answer": 2,
            "because": f"Everybody shares one read of the weights: throughput grows {few:.1f}-fold. At 64 it has grown "
            f"{many:.0f}-fold, and each token takes {chat.step(64) / chat.step(1):.1f} times as long.",
        },
    }
