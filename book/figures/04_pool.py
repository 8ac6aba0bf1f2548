"""Five requests, one of them with two answers, on a pool that is too small for all of them: blocks taken, shared, given back; one is preempted."""

from typing import Any

import torch

import kvedu
from kvedu import texts
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.engine.engine import Engine
from kvedu.model.sampling import Sampling
from kvedu.viz import trace

BLOCKS, SIZE = 30, 16
REQUESTS = (
    # label, prompt tokens, new tokens, completions, step at which it arrives
    ("A", 70, 40, 1, 0),
    ("B", 33, 60, 1, 0),
    ("C", 90, 30, 2, 4),
    ("D", 120, 24, 1, 10),
    ("E", 20, 50, 1, 16),
)


def run() -> dict[str, Any]:
    """The figure's data, from the real model."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
    ids = model.tokenizer.encode(texts.read("prose"))
    block_bytes = SIZE * kv_bytes_per_token(model.config, 4)
    engine = Engine(model, cache_bytes=BLOCKS * block_bytes, page_size=SIZE, max_running=6, token_budget=64)
    waiting = list(REQUESTS)

    def arrive(step: int) -> None:
        while waiting and waiting[0][4] <= step:
            _, prompt, new, copies, _ = waiting.pop(0)
            sampling = Sampling(temperature=0.8, seed=1) if copies > 1 else Sampling()
            engine.add(ids[:prompt], max_new_tokens=new, sampling=sampling, n=copies, ignore_eos=True)

    recorded = trace.record(engine, "engine", before=arrive)
    _, prompt, _, copies, _ = next(request for request in REQUESTS if request[3] > 1)
    shared, pages = prompt // SIZE, -(-prompt // SIZE)
    predict = {
        "question": f"Request C wants {copies} answers to one prompt of {prompt} tokens. When both are being written, how many blocks do their "
        "tables have in common?",
        "choices": [str(n) for n in (0, shared, pages)],
        "answer": 1,
        "because": f"That is what the prompt fills: {shared} blocks of {SIZE} tokens. The block that holds its last {prompt - shared * SIZE} is "
        "written to by both, so one of them has a copy.",
    }
    return trace.data(
        [recorded],
        title="Five requests on a pool of blocks",
        block_size=SIZE,
        n_blocks=engine.cache.n_blocks,
        labels=[label for label, *_ in REQUESTS],
        predict=predict,
        step=8,
    )
