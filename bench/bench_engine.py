"""The engine on a serving mix: 48 requests, every second one with a shared 256-token prefix, against transformers.

    python bench/bench_engine.py [--save]          # some 3 minutes on two cores

Both get the same seeded requests at once, greedy, EOS ignored. transformers serves them as it can without a
scheduler: padded batches of 16 in order of arrival, each until its longest output ends. The engine is run
with and without prefix reuse. vLLM's CPU build is measured by the same mix in an environment of its own (it is
not installed by this project; the bench says so where it is absent).
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from bench_generate import hugging_face
import kvedu
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.book.rows import save_row
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.engine import Engine
from kvedu.engine.trace import Preempted, Stepped
from kvedu.engine.workload import serving_mix
from kvedu.model.dtype import fast_dtype

CACHE_TOKENS = 24_000
"""Places in the cache: all 48 requests fit at once."""


def serve(model, mix, reuse) -> tuple[float, Engine]:
    """Seconds to serve the whole mix, and the engine with its trace."""
    cache_bytes = CACHE_TOKENS * kv_bytes_per_token(model.config, model.dtype.itemsize)
    engine = Engine(model, cache_bytes=cache_bytes, reuse=reuse, max_running=48, token_budget=512)
    start = time.perf_counter()
    for request in mix:
        engine.add(list(request.prompt_ids), max_new_tokens=request.max_new_tokens, ignore_eos=True)
    while not engine.idle:
        engine.step()
    return time.perf_counter() - start, engine


def serve_padded(theirs, mix) -> float:
    """Seconds that transformers takes in padded static batches of 16."""
    start = time.perf_counter()
    for i in range(0, len(mix), 16):
        batch = mix[i : i + 16]
        width = max(len(r.prompt_ids) for r in batch)
        ids = torch.tensor([[2] * (width - len(r.prompt_ids)) + list(r.prompt_ids) for r in batch])
        mask = torch.tensor([[0] * (width - len(r.prompt_ids)) + [1] * len(r.prompt_ids) for r in batch])
        n = max(r.max_new_tokens for r in batch)
        with torch.inference_mode():
            theirs.generate(
                ids, attention_mask=mask, max_new_tokens=n, do_sample=False, pad_token_id=2, eos_token_id=-1
            )
    return time.perf_counter() - start


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row under bench/results")
    parser.add_argument("--rounds", type=int, default=1, help="engine and peer in turns")
    options = parser.parse_args(argv)
    dtype, why = fast_dtype("cpu")
    mix = serving_mix()
    tokens = sum(request.max_new_tokens for request in mix)
    prompt_tokens = sum(len(request.prompt_ids) for request in mix)
    print(f"{len(mix)} requests, {prompt_tokens:,} prompt and {tokens:,} output tokens; {dtype} ({why})", flush=True)
    model, theirs = kvedu.load(dtype=dtype).pack(), hugging_face(kvedu.load(dtype=dtype))
    values: dict[str, float] = {"prompt_tokens": prompt_tokens, "output_tokens": tokens, "threads": torch.get_num_threads()}
    for _ in range(options.rounds):
        for name, reuse in (("engine", HashReuse), ("engine_without_reuse", None)):
            seconds, engine = serve(model, mix, reuse)
            steps = engine.trace.of(Stepped)
            computed = sum(share.tokens for step in steps for share in step.shares)
            values[f"{name}_output_tok_per_s"] = tokens / seconds
            print(
                f"{name:22s} {tokens / seconds:6.1f} output tok/s, {len(steps)} steps, {computed:,} tokens computed, "
                f"{len(engine.trace.of(Preempted))} preemptions",
                flush=True,
            )
        padded = serve_padded(theirs, mix)
        values["transformers_padded_output_tok_per_s"] = tokens / padded
        print(f"{'transformers, padded':22s} {tokens / padded:6.1f} output tok/s", flush=True)
    values["ratio"] = values["engine_output_tok_per_s"] / values["transformers_padded_output_tok_per_s"]
    print(f"ratio {values['ratio']:.2f}; vLLM's CPU build is not installed here and was not measured")
    if options.save:
        save_row("engine", values, command=" ".join(["python", "bench/bench_engine.py", *argv]))


if __name__ == "__main__":
    main(sys.argv[1:])
