"""Twelve requests in four slots, static and continuous: the first four need 4, 2, 10 and 3 tokens."""

from typing import Any

import torch

import kvedu
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.engine.engine import Engine
from kvedu.engine.scheduler import continuous, static
from kvedu.engine.trace import Stepped
from kvedu.viz import trace

SLOTS = 4
BEGINNINGS = (
    "The capital of France is", "Water boils at", "The opposite of cold is", "My favorite color is",
    "Two plus two is", "The largest planet is", "Dogs are known for", "A haiku is",
    "The sun rises in the", "The first man on the Moon was", "Bread is made from", "At night the sky is",
)  # fmt: skip
WANTED = (4, 2, 10, 3, 4, 1, 5, 2, 2, 6, 1, 3)
"""New tokens of each; the first four are the example of the document that the chapter follows."""


def run() -> dict[str, Any]:
    """The figure's data, from the real model."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
    runs = []
    for admit in (static, continuous):
        engine = Engine(model, cache_bytes=256 * kv_bytes_per_token(model.config, 4), max_running=SLOTS, admit=admit)
        for text, new in zip(BEGINNINGS, WANTED):
            engine.add(text, max_new_tokens=new, ignore_eos=True)
        while not engine.idle:
            engine.step()
        runs.append(trace.run_of(engine.trace, admit.__name__, slots=SLOTS))
        steps = len(engine.trace.of(Stepped))
    alone = -(-sum(WANTED) // SLOTS)
    return trace.data(
        runs,
        title="Twelve requests in four slots",
        labels=[f"{chr(65 + i)} ({n})" for i, n in enumerate(WANTED)],
        predict={
            "question": "In static batches these twelve requests take "
            f"{sum(max(WANTED[i : i + SLOTS]) for i in range(0, len(WANTED), SLOTS))} steps. Now a free slot is filled at once. How many?",
            "choices": [f"{alone}: no slot is ever empty", str(steps), str(2 * steps - alone)],
            "answer": 1,
            "because": f"{sum(WANTED)} tokens in {SLOTS} slots would fit into {alone} steps, but at the end the line is empty and the "
            "last requests run out alone.",
        },
        rows="slots",
        run="static",
    )
