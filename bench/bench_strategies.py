"""What the strategies of ``analysis.strategies`` lose on the real model: an easy task beside recall, one battery for all.

    python bench/bench_strategies.py [--save] [--length 512]      # some 3 minutes of one core

Contexts are short for a model of this size to answer at all, so the window keeps a quarter of the text here, as much as
the evicting cache does; in a longer text it would keep less. What lies in the host's memory loses nothing by construction:
its logits are compared bit by bit instead.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial

import torch

import kvedu
from kvedu import ConcatCache, EvictingCache, QuantizedCache, StreamingCache
from kvedu.analysis.strategies import SINKS
from kvedu.book.rows import save_row
from kvedu.caches.formats import integer
from kvedu.caches.offloaded import OffloadedCache
from kvedu.caches.scores import snapkv
from kvedu.compress.evaluate.battery import battery, damages
from kvedu.compress.evaluate.feed import MakeCache
from kvedu.config import ModelConfig
from kvedu.model.dtype import fast_dtype
from kvedu.model.transformer import Transformer

CHUNK = 16


def caches(config: ModelConfig, length: int, dtype: torch.dtype) -> dict[str, MakeCache]:
    """A cache for each strategy that keeps the model, by its name."""
    int8, quarter = integer(8, config.D, symmetric=True), length // 4
    made = {
        "bf16, as trained": ConcatCache,
        "int8": partial(QuantizedCache, keys=int8, values=int8),
        "4 bit, KIVI": partial(QuantizedCache.kivi, bits=4),
        "2 bit, KIVI": partial(QuantizedCache.kivi, bits=2),
        "window and sinks": partial(StreamingCache, window=quarter - SINKS, sinks=SINKS),
        "evict to a quarter": partial(EvictingCache, budget=quarter, score=snapkv, recent=min(32, quarter)),
    }
    return {name: partial(make, dtype=dtype) for name, make in made.items()}


def same_logits(model: Transformer, ids: list[int], dtype: torch.dtype) -> bool:
    """Whether an offloaded cache gives the plain cache's logits, to the bit, over a prompt and some steps."""
    plain, away = ConcatCache(model.config, dtype=dtype), OffloadedCache(model.config, max_length=len(ids), dtype=dtype)
    seqs, equal = (plain.add(), away.add()), True
    for start, stop in ((0, len(ids) - 8), *((i, i + 1) for i in range(len(ids) - 8, len(ids)))):
        logits = []
        for cache, seq in zip((plain, away), seqs):
            with cache.step({seq: stop - start}) as view:
                logits.append(model(torch.tensor(ids[start:stop]), view, view.last_rows))
        equal &= torch.equal(*logits)
    return equal


@torch.inference_mode()
def main(argv: list[str]) -> int:
    """Measure, print, and store with ``--save``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row under bench/results")
    parser.add_argument("--length", type=int, default=512, help="tokens of a context")
    options = parser.parse_args(argv)
    dtype, why = fast_dtype("cpu")
    print(f"{torch.get_num_threads()} threads, {why}", flush=True)
    model = kvedu.load(dtype=dtype, device="cpu").pack()
    tasks = battery(model, options.length, n=2, copies=1)
    values = {
        "settings": {
            "model": "smollm2-135m", "dtype": str(dtype).removeprefix("torch."), "length": options.length, "chunk": CHUNK,
            "needles": len(tasks.needles), "keys": sum(len(quiz.asks) for quiz in tasks.keys),
        },
    }  # fmt: skip
    for name, damage in damages(model, tasks, caches(model.config, options.length, dtype), chunk=CHUNK):
        values[name] = {key: round(value, 4) for key, value in asdict(damage).items()}
        print(f"{name}: {values[name]}", flush=True)
    values["offload to the host"] = values["bf16, as trained"] | {"same_bits": same_logits(model, list(tasks.prose[:128]), dtype)}
    print(f"offloaded, same logits to the bit: {values['offload to the host']['same_bits']}")
    if options.save:
        save_row("strategies", values, command=" ".join(["python", "bench/bench_strategies.py", *argv]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
