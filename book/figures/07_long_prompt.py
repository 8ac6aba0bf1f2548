"""Three sequences decode, and a long prompt arrives: computed in one step, and in chunks under a budget of tokens."""

from typing import Any

import torch

import kvedu
from kvedu import texts
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.engine.engine import Engine
from kvedu.viz import trace

DECODES, NEW, PROMPT, ARRIVES = 3, 40, 512, 8
BUDGETS = {"whole prompt in one step": 4096, "64 tokens a step": 64, "16 tokens a step": 16}


def run() -> dict[str, Any]:
    """The figure's data, from the real model."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
    ids = model.tokenizer.encode(texts.read("prose"))
    runs = []
    for name, budget in BUDGETS.items():
        engine = Engine(model, cache_bytes=1024 * kv_bytes_per_token(model.config, 4), max_running=8, token_budget=budget)

        def arrive(step: int) -> None:
            if step == 0:
                for i in range(DECODES):
                    engine.add(ids[20 * i : 20 * i + 12], max_new_tokens=NEW, ignore_eos=True)
            if step == ARRIVES:
                engine.add(ids[:PROMPT], max_new_tokens=4, ignore_eos=True)

        recorded = trace.record(engine, name, before=arrive)
        recorded.pop("tables")  # blocks are another chapter's subject
        runs.append(recorded)
    return trace.data(
        runs,
        title="A long prompt arrives",
        labels=["A", "B", "C", f"D ({PROMPT} tokens)"],
        rows="sequences",
        by="seconds",
        step=ARRIVES,
        run=next(iter(BUDGETS)),
    )
