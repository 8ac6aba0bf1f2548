"""Data of the roofline: models, machines, and where the step starts."""

from __future__ import annotations

from typing import Any, Sequence

from kvedu.analysis.flops import decode_cost, total
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.roofline import bound_by, ridge_point
from kvedu.viz.configs import limits, sizes

MODELS = ("SmolLM2-135M", "Llama-3-8B", "Mistral-7B-v0.1", "Qwen2.5-72B")
MACHINES = ("laptop-CPU", "L4", "A100-80GB-SXM", "H100-SXM", "H200-SXM")
BATCH, CONTEXT = 256, 8192
"""The step that the question asks about."""


def data(
    models: Sequence[str] = MODELS, machines: Sequence[str] = MACHINES, points: Sequence[dict[str, Any]] = (), **start: Any
) -> dict[str, Any]:
    """The figure's data; each machine must have a bf16 rate.

    ``points`` adds measured ones: {"name", "machine", "intensity" in FLOPs per byte, "flops" in FLOP/s}. ``start`` sets
    controls: model, machine, tokens (new ones per sequence), batch, context.
    """
    config, machine = known_model("Llama-3-8B").config, hardware("H100-SXM")
    step = total(decode_cost(config, CONTEXT, BATCH))
    choices = {"compute": "Yes, it is bound by compute then", "memory": "No, memory still bounds it"}
    return {
        "figure": "roofline",
        "title": "Roofline of one step",
        "models": [sizes(name) for name in models],
        "machines": [limits(name) for name in machines],
        "points": list(points),
        "start": {"model": "Llama-3-8B", "machine": "H100-SXM"} | start,
        "predict": {
            "question": f"One sequence decodes at about one FLOP per byte. An H100 needs {ridge_point(machine, 'bf16'):.0f}. "
            f"Do {BATCH} sequences of {CONTEXT:,} tokens in one step get Llama-3-8B there?",
            "choices": list(choices.values()),
            "answer": list(choices).index(bound_by(step, machine, "bf16")),
            "because": f"The step has {step.intensity:.0f} FLOPs per byte. Weights are shared by all sequences, caches are "
            "not: attention stays where it was, however many there are.",
        },
    }
