"""A few seconds of a small server: eight requests, four of them with one system prompt, on a pool of 30 blocks with reuse."""

from typing import Any

import torch

import kvedu
from kvedu import texts
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.engine import Engine
from kvedu.engine.trace import Admitted
from kvedu.viz import trace

BLOCKS, SIZE, SHARED = 30, 16, 64
REQUESTS = (
    # label, has the system prompt, own prompt tokens, new tokens, step at which it arrives
    ("A", True, 16, 24, 0),
    ("B", False, 90, 20, 0),
    ("C", True, 10, 40, 6),
    ("D", False, 40, 60, 6),
    ("E", True, 30, 16, 12),
    ("F", False, 150, 12, 18),
    ("G", True, 12, 30, 30),
    ("H", False, 24, 40, 34),
)


def run() -> dict[str, Any]:
    """The figure's data, from the real model."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
    encode = model.tokenizer.encode
    system, page = encode(texts.read("prose"))[:SHARED], encode(texts.read("story"))
    budget = BLOCKS * SIZE * kv_bytes_per_token(model.config, 4)
    engine = Engine(model, cache_bytes=budget, page_size=SIZE, reuse=HashReuse, max_running=6, token_budget=96)
    waiting = list(REQUESTS)

    def arrive(step: int) -> None:
        while waiting and (waiting[0][4] <= step or engine.idle):
            _, shares, own, new, _ = waiting.pop(0)
            start = 200 * len(waiting)  # every request has words of its own
            engine.add((system if shares else []) + page[start : start + own], max_new_tokens=new, ignore_eos=True)

    recorded = trace.record(engine, "engine", before=arrive)
    reused = sum(event.reused for event in engine.trace.of(Admitted))
    asked = sum(shares for _, shares, *_ in REQUESTS)
    assert reused == (asked - 1) * SHARED, "each but the first finds the whole system prompt"
    predict = {
        "question": f"{asked} of {len(REQUESTS)} requests begin with the same {SHARED} tokens, in blocks of {SIZE}. How many blocks do these "
        "beginnings take in the pool, however many of the requests run at once?",
        "choices": [str(n) for n in (asked * SHARED // SIZE, 2 * SHARED // SIZE, SHARED // SIZE)],
        "answer": 2,
        "because": f"One copy: {SHARED // SIZE} blocks. It is kept when the last of them has ended, too, until somebody needs the room.",
    }
    return trace.data(
        [recorded],
        title="A pool at work",
        block_size=SIZE,
        n_blocks=engine.cache.n_blocks,
        labels=[label for label, *_ in REQUESTS],
        predict=predict,
        step=20,
    )
