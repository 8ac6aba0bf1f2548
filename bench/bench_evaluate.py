"""What caches that let tokens go lose: every policy at half and at a quarter of the tokens, easy tasks beside recall.

    python bench/bench_evaluate.py [--save] [--fresh] [--length 512]      # some 15 minutes of one core; goes on where it was stopped

1. ``eviction``: a ``Battery`` (compress.evaluate) through every policy, a window, and sinks with a window, at
   budgets of 50 % and 25 % of the context, and through the full cache. The question comes after the context, when tokens
   are gone already; needles are asked once more with the question in sight.
2. ``window_sinks``: perplexity of two frozen texts, each one stream of 4,096 tokens, with a window of 256 tokens without and with sinks.

With ``--save`` each method is stored when it is measured. A row that has a method with these settings is not measured again
(``--fresh``: it is).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Any, Callable

import torch

import kvedu
from kvedu import ConcatCache, EvictingCache, StreamingCache, WindowCache, texts
from kvedu.book.provenance import machine_info
from kvedu.book.rows import load_rows, save_row
from kvedu.caches import scores
from kvedu.compress.evaluate.battery import Battery, battery, damages
from kvedu.compress.evaluate.feed import MakeCache
from kvedu.compress.evaluate.predict import perplexity_through
from kvedu.compress.evaluate.quiz import accuracy, answer
from kvedu.errors import KveduError
from kvedu.model.dtype import fast_dtype
from kvedu.model.transformer import Transformer

SHARES = (50, 25)
WINDOW, SINKS, STREAM, CHUNK = 256, 4, 4096, 16


def methods(budget: int) -> dict[str, Callable[..., object]]:
    """Every way to hold ``budget`` tokens: policies as their papers set them, and baselines."""
    evicting = partial(EvictingCache, budget=budget, sinks=SINKS)
    return {
        "h2o": partial(EvictingCache, budget=budget, score=scores.h2o, recent=budget // 2),
        "snapkv": partial(EvictingCache, budget=budget, score=scores.snapkv, recent=32),
        "tova": partial(EvictingCache, budget=budget, score=scores.tova),
        "key_norm": partial(evicting, score=scores.key_norm, recent=8),
        "random": partial(evicting, score=scores.random, recent=8),
        "recent": partial(EvictingCache, budget=budget, score=scores.recent),
        "window": partial(WindowCache, window=budget),
        "window with sinks": partial(WindowCache, window=budget - SINKS, sinks=SINKS),
        "streaming": partial(StreamingCache, window=budget - SINKS, sinks=SINKS),
    }


class Stored:
    """A row that grows: values measured before with the same settings, and each new one stored at once."""

    def __init__(self, name: str, settings: dict[str, Any], command: str, save: bool, fresh: bool) -> None:
        self.name, self.command, self.save = name, command, save
        self.values: dict[str, Any] = {"settings": settings}
        if save and not fresh:
            try:
                here = [row for row in load_rows(name) if row.machine == machine_info()]
            except KveduError:
                here = []
            if here and here[-1].values.get("settings") == settings:
                self.values = here[-1].values

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __setitem__(self, key: str, value: Any) -> None:
        self.values[key] = value
        print(f"{self.name}, {key}: {value}", flush=True)
        if self.save:
            save_row(self.name, self.values, command=self.command)


def measure_one(model: Transformer, tasks: Battery, make: MakeCache) -> dict[str, float]:
    """One method's damage, and its needles with the question in sight."""
    start = time.process_time()
    ((_, damage),) = damages(model, tasks, {"": make}, chunk=CHUNK)
    aware = accuracy(answer(model, tasks.needles, make, aware=True))
    return {key: round(value, 4) for key, value in asdict(damage).items()} | {"needle_aware": aware, "cpu_s": round(time.process_time() - start, 1)}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the rows under bench/results")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--length", type=int, default=512, help="tokens of a context")
    options = parser.parse_args(argv)
    command = " ".join(["python", "bench/bench_evaluate.py", *argv])
    dtype, why = fast_dtype("cpu")
    print(f"{torch.get_num_threads()} threads, {why}", flush=True)
    model = kvedu.load(dtype=dtype, device="cpu").pack()
    common = {"model": "smollm2-135m", "dtype": str(dtype).removeprefix("torch."), "chunk": CHUNK}

    hashes = {name: texts.sha256(name) for name in ("prose", "story")}
    tasks = battery(model, options.length, n=2, copies=2)
    settings = common | {"length": options.length, "needles": len(tasks.needles), "keys": "8 asked of 16, twice", "texts": hashes}
    row = Stored("eviction", settings, command, options.save, options.fresh)
    if "full" not in row:
        row["full"] = measure_one(model, tasks, partial(ConcatCache, dtype=dtype))
    for share in SHARES:
        for name, make in methods(options.length * share // 100).items():
            if (key := f"{name}, {share} %") not in row:
                row[key] = measure_one(model, tasks, partial(make, dtype=dtype))

    hashes = {name: texts.sha256(name) for name in ("prose", "code")}
    settings = common | {"window": WINDOW, "sinks": SINKS, "tokens": STREAM, "texts": hashes}
    row = Stored("window_sinks", settings, command, options.save, options.fresh)
    kinds = {
        "full": ConcatCache,
        "window": partial(WindowCache, window=WINDOW),
        "window with sinks": partial(WindowCache, window=WINDOW - SINKS, sinks=SINKS),
        "streaming": partial(StreamingCache, window=WINDOW - SINKS, sinks=SINKS),
    }
    for text in hashes:
        ids = model.tokenizer.encode(texts.read(text))[:STREAM]
        for name, make in kinds.items():
            if (key := f"{name}, {text}") not in row:
                row[key] = {"perplexity": perplexity_through(model, ids, partial(make, dtype=dtype), chunk=CHUNK), "tokens": len(ids)}
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
