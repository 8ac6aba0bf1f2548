"""Static against continuous batching at scale, and what each part of a serving stack adds: the scheduler on a clock.

    python bench/bench_batching.py [--save]          # some 4 minutes, one core

No model runs: step times are the roofline's for Llama-3-8B on named GPUs. Prompts and replies are as long as those
in ``reply_lengths.json``, drawn anew with a seed; all requests come at once, and rates are taken while a line waits.

``slots``: static and continuous with the same number of slots and room for all; beside the stored lengths those of
published workloads (``kvedu.engine.mixes``), as they are and with all but 16 tokens of each prompt found in the cache. ``stack``: from static batches that reserve a whole context for each sequence upwards, one change at a
time; ``alone`` is one request at a time.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from random import Random

from kvedu.analysis.batching import static_over_continuous
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.book.rows import load_row, save_row
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.metrics import preemptions
from kvedu.engine.mixes import AZURE_CODE, AZURE_CONVERSATION, SHAREGPT4
from kvedu.engine.scheduler import static
from kvedu.engine.simulate import simulate
from kvedu.engine.step_time import blocks_beside_weights, roofline_seconds
from kvedu.engine.trace import Stepped, Trace
from kvedu.engine.workload import Arrival, Lengths, all_at_once, independent, uniform

MODEL, PAGE, SEED = "Llama-3-8B", 16, 7
NO_BUDGET = 10**7
"""A token budget that lets a whole batch in at once, so that policies differ in nothing but who may enter."""


def while_a_line_waits(trace: Trace) -> tuple[int, int, float]:
    """Steps, sampled tokens and seconds up to the step after which nobody waits any more."""
    steps = trace.of(Stepped)
    busy = steps[: 1 + max(i for i, step in enumerate(steps) if step.waiting)]
    return len(busy), sum(share.sampled for step in busy for share in step.shares), busy[-1].time - busy[0].start


def drawn(n: int, shared: int = 0) -> list[Arrival]:
    """``n`` requests at once, lengths in pairs as stored."""
    row = load_row("reply_lengths")
    pairs = Random(SEED).choices(list(zip(row["prompt_tokens"], row["reply_tokens"])), k=n)
    prompts, replies = (iter(side) for side in zip(*pairs))
    return independent(all_at_once(n), lambda _: next(prompts), lambda _: next(replies), shared_tokens=shared, seed=SEED)


def made_up(prompt: Lengths, output: Lengths, n: int) -> list[Arrival]:
    """``n`` requests at once, prompts and outputs from two distributions."""
    return independent(all_at_once(n), prompt, output, seed=SEED)


def slots_part() -> list[dict[str, object]]:
    """Static over continuous, by steps and by seconds, for one GPU."""
    config, gpu = known_model(MODEL).config, hardware("H200-SXM")
    seconds = roofline_seconds(config, gpu)
    kinds = {"this model's answers": drawn}
    for mix in (AZURE_CONVERSATION, AZURE_CODE, SHAREGPT4):
        kinds[mix.name] = partial(made_up, mix.prompt, mix.output)
    for mix in (AZURE_CONVERSATION, AZURE_CODE):
        kinds[f"{mix.name}, prompts reused"] = partial(made_up, uniform(16, 16), mix.output)
    kinds |= {"uniform": partial(made_up, uniform(100, 300), uniform(1, 399)), "all alike": partial(made_up, uniform(200, 200), uniform(200, 200))}
    rows = []
    for name, kind in kinds.items():
        for batch in (8, 32, 128):
            arrivals = kind(12 * batch)
            found = []
            for settings in ({"admit": static}, {}):
                trace = simulate(
                    arrivals, seconds, n_blocks=10**6, page_size=PAGE, max_running=batch, token_budget=NO_BUDGET, **settings
                )
                found.append(while_a_line_waits(trace))
            (s_steps, s_tokens, s_time), (c_steps, c_tokens, c_time) = found
            rows.append({
                "lengths": name, "batch": batch, "gpu": gpu.name,
                "formula": static_over_continuous([a.max_new_tokens for a in arrivals], batch),
                "static_utilization": s_tokens / s_steps / batch, "continuous_utilization": c_tokens / c_steps / batch,
                "steps_ratio": (s_steps / s_tokens) / (c_steps / c_tokens),
                "seconds_ratio": (s_time / s_tokens) / (c_time / c_tokens),
            })  # fmt: skip
            print("{lengths:40s} {batch:4d}  formula {formula:5.2f}  steps {steps_ratio:5.2f}  seconds {seconds_ratio:5.2f}  "
                  "used {static_utilization:.0%} {continuous_utilization:.0%}".format(**rows[-1]), flush=True)  # fmt: skip
    return rows


def stack_part(n: int = 1200, most_running: int = 256, budget: int = 2048) -> list[dict[str, object]]:
    """Output tokens a second of each rung, by GPU and by the length of a system prompt that all share."""
    config = known_model(MODEL).config
    rows = []
    for name in ("A100-40GB-SXM", "H200-SXM"):
        gpu = hardware(name)
        small = "fp8" if "fp8" in gpu.flops else "int8"
        plain, halved = (blocks_beside_weights(config, gpu, PAGE, dtype) for dtype in ("bf16", small))
        reserved = plain // (config.max_positions // PAGE)
        paged = {"max_running": most_running, "token_budget": budget}
        rungs = {
            "alone": ("bf16", plain, {"max_running": 1, "token_budget": NO_BUDGET}),
            "static, context reserved": ("bf16", plain, {"max_running": reserved, "token_budget": NO_BUDGET, "admit": static}),
            "continuous": ("bf16", plain, {"max_running": reserved, "token_budget": budget}),
            "paged": ("bf16", plain, paged),
            "prefix reused": ("bf16", plain, paged | {"reuse": HashReuse}),
            f"8 bits ({small})": (small, halved, paged | {"reuse": HashReuse}),
        }  # fmt: skip
        for shared in (0, 500):
            arrivals = drawn(n, shared=shared)
            for rung, (dtype, blocks, settings) in rungs.items():
                some = arrivals[: n // 20] if rung == "alone" else arrivals
                trace = simulate(some, roofline_seconds(config, gpu, dtype), n_blocks=blocks, page_size=PAGE, **settings)
                _, tokens, took = while_a_line_waits(trace)
                rows.append({
                    "gpu": name, "shared_tokens": shared, "rung": rung, "slots": settings["max_running"],
                    "output_tok_per_s": tokens / took, "preemptions": preemptions(trace),
                })  # fmt: skip
                print("{gpu:14s} shared {shared_tokens:4d}  {rung:26s} {slots:4d} slots  {output_tok_per_s:9,.0f} tok/s  "
                      "{preemptions} preempted".format(**rows[-1]), flush=True)  # fmt: skip
    return rows


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row under bench/results")
    options = parser.parse_args(argv)
    values = {"model": MODEL, "page_size": PAGE, "seed": SEED, "slots": slots_part(), "stack": stack_part()}
    if options.save:
        save_row("batching", values, command="python bench/bench_batching.py --save")


if __name__ == "__main__":
    main(sys.argv[1:])
