"""Chats that share a system prompt, on a pool too small to keep them all: the radix tree grows, is used, and forgets."""

from typing import Any

import torch

import kvedu
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.engine.engine import Engine
from kvedu.viz import radix

BLOCKS, SIZE = 16, 8
SYSTEM = "You are a patient teacher. Answer in one short sentence, in plain words, and name one example."
OTHER = "You are a poet. Answer in two lines that rhyme."
TURNS = (
    # label, system prompt, question, step at which it arrives
    ("A", SYSTEM, "Why is the sky blue?", 0),
    ("B", SYSTEM, "Why is grass green?", 12),
    ("C", OTHER, "Why is the sky blue?", 30),
    ("D", SYSTEM, "Why is the sea salty?", 44),
    ("E", OTHER, "Where do birds sleep?", 60),
    ("A again", SYSTEM, "Why is the sky blue?", 78),
)


def run() -> dict[str, Any]:
    """The figure's data, from the real model."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
    budget = BLOCKS * SIZE * kv_bytes_per_token(model.config, 4)
    engine = Engine(model, cache_bytes=budget, page_size=SIZE, max_running=4, token_budget=64, reuse=RadixReuse)
    coming = list(TURNS)

    def arrive(step: int) -> None:
        while coming and (coming[0][3] <= step or engine.idle):
            _, system, question, _ = coming.pop(0)
            engine.add(
                [{"role": "system", "content": system}, {"role": "user", "content": question}],
                max_new_tokens=20,
                ignore_eos=True,
            )

    states = radix.record(engine, [label for label, *_ in TURNS], before=arrive)
    again = engine.results(len(TURNS) - 1)[0]
    found = next(s["reused"] for s in states if s["label"].startswith("A again"))
    whole = (len(again.prompt_ids) - 1) // SIZE * SIZE
    choices = [f"All that can be, {whole} tokens", "A part of it", "Nothing"]
    return radix.data(
        states,
        title="A radix tree of cached prefixes",
        block_size=SIZE,
        predict={
            "question": f"A asks its question, four other chats follow on a pool of {BLOCKS} blocks of {SIZE} tokens, then "
            f"A's prompt of {len(again.prompt_ids)} tokens comes once more. How much of it is still cached?",
            "choices": choices,
            "answer": 0 if found == whole else 1 if found else 2,
            "because": f"It finds {found} tokens. Play it and see which leaves went, and when.",
        },
    )
