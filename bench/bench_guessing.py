"""How many guesses pay: k swept with prompt lookup and a draft, passes by their rows, and what is kept by kind of text and temperature.

    python bench/bench_guessing.py [--save] [--prompts 4]

Edit-or-extract tasks of the held-out set, one sequence at a time. For each k the speed of decoding beside plain decoding, in one
run, and what a prediction needs: acceptance by place, seconds of a pass by its rows, seconds of a draft. Then four kinds of text, each
continued greedily and at temperature 1: the share of first guesses kept. Processor time, about a minute with bf16 units.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

import kvedu
from kvedu import DraftModel, NGram, Sampling, StaticCache, Transformer, generate, speculate
from kvedu.analysis.cost import interpolate
from kvedu.analysis.speculation import speedup
from kvedu.book.rows import save_row
from kvedu.model.dtype import fast_dtype
from kvedu.speculative.draws import Draws
from kvedu.speculative.first_layers import first_layers
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.rounds import Speculated
from kvedu.texts import held_out

ROOT = Path(__file__).resolve().parents[1]
ROWS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 20, 40, 80, 160)
KS = {"prompt lookup": (1, 2, 3, 4, 6, 8, 12, 16), "first 24 layers": (1, 2, 3, 4)}
TOKENS, LAYERS = 64, 24
JSON = (
    '[\n  {"sku": "A-100", "title": "Desk lamp", "price": 24.5},\n  {"sku": "A-101", "title": "Floor lamp", "price": 79.0},\n  {"sku":',
    '{"readings": [{"hour": 0, "celsius": 3.1}, {"hour": 1, "celsius": 2.8}, {"hour": 2, "celsius":',
    '{"users": [\n  {"id": 1, "name": "Ada", "active": true},\n  {"id": 2, "name": "Ben", "active": false},\n  {"id": 3, "name":',
    '{"recipe": "pancakes", "serves": 4, "ingredients": [{"item": "flour", "grams": 250}, {"item": "milk", "grams": 500}, {"item":',
    '{\n  "name": "garden-sensor",\n  "version": "0.3.1",\n  "scripts": {"build": "tsc", "test": "jest"},\n  "dependencies": {\n    "',
    '{"openapi": "3.0.0", "info": {"title": "Orders", "version": "1.2"}, "paths": {"/orders": {"get": {"summary": "List orders", "responses": {"',
)
"""Beginnings of JSON, written for this bench."""


class Bench:
    """A model and one cache that every run begins anew in, behind its prompt."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.cache = StaticCache(model.config, max_length=1024, dtype=model.dtype)
        self.seq = self.cache.add()

    def read(self, ids: list[int]) -> None:
        """Start with these tokens in the cache."""
        self.cache.truncate(self.seq, 0)
        with self.cache.step({self.seq: len(ids)}) as view:
            self.model(torch.tensor(ids), view, view.last_rows)

    def clock(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """Processor seconds of some work, and what it gave; the cache is then as it was."""
        length, start = self.cache.length(self.seq), time.process_time()
        done = work()
        seconds = time.process_time() - start
        self.cache.truncate(self.seq, length)
        return seconds, done

    def run(self, decode: Callable[..., Any], ids: list[int], **more: Any) -> tuple[float, Any]:
        """Decode behind a prompt that was read but for its last token."""
        return self.clock(lambda: decode(self.model, ids, cache=self.cache, seqs=[self.seq], max_new_tokens=TOKENS, ignore_eos=True, **more))

    def passes(self, repeats: int = 7) -> dict[int, float]:
        """Median seconds of a pass by its rows, behind 128 tokens."""
        ids = (self.model.tokenizer.encode(held_out.group("prose").prompts[0]) * 9)[:160]
        self.read(ids[:128])

        def one(n: int) -> None:
            with self.cache.step({self.seq: n}) as view:
                self.model(torch.tensor(ids[:n]), view)

        took: dict[int, list[float]] = {n: [] for n in ROWS}
        for n in ROWS * repeats:
            self.clock(lambda: one(n))  # the pass after one of another size does not count
            took[n].append(self.clock(lambda: one(n))[0])
        return {n: statistics.median(seconds) for n, seconds in took.items()}


class Clocked(Proposer):
    """A proposer, and the processor seconds that it takes."""

    def __init__(self, inner: Proposer) -> None:
        self.inner, self.seconds = inner, 0.0
        self.check, self.taps, self.feed, self.observe, self.release = inner.check, inner.taps, inner.feed, inner.observe, inner.release

    def propose(self, asks: Any) -> Any:
        start = time.process_time()
        found = self.inner.propose(asks)
        self.seconds += time.process_time() - start
        return found


def makers(model: Transformer) -> dict[str, Callable[[int], Proposer]]:
    """Ways of guessing k tokens."""
    return {"prompt lookup": lambda k: NGram(k), f"first {LAYERS} layers": lambda k: DraftModel(first_layers(model, LAYERS), k)}


def sweep(bench: Bench, prompts: list[list[int]], step: dict[int, float]) -> list[dict[str, Any]]:
    """For every way and k, medians over the prompts: τ, what a round costs in plain steps, τ / (1 + c), measured speed-up; acceptance by place of all."""
    verify = interpolate(step)
    found: list[dict[str, Any]] = []
    runs: dict[tuple[str, int], list[tuple[float, Speculated, float]]] = {(name, k): [] for name, ks in KS.items() for k in ks}
    plain: list[float] = []
    for ids in prompts:
        bench.read(ids[:-1])
        before = bench.run(generate, ids)[0]
        for name, k in runs:
            proposer = Clocked(makers(bench.model)[name](k))
            proposer.propose([Ask((0, 0), tuple(ids), 1, Sampling(), Draws(Sampling()))])  # the prompt's own pass does not count
            proposer.seconds = 0.0
            seconds, done = bench.run(speculate, ids, proposer=proposer)
            runs[name, k].append((seconds, done, proposer.seconds))
        plain.append((before + bench.run(generate, ids)[0]) / 2)
    for (name, k), each in runs.items():
        rounds = [r for _, done, _ in each for r in done.rounds]
        reached = [[r.accepted >= place for r in rounds if r.depth >= place and r.accepted >= place - 1] for place in range(1, k + 1)]
        tau = [done.tokens_per_round for _, done, _ in each]
        cost = [
            (seconds / len(done.rounds) + statistics.mean(verify(1 + r.guessed) for r in done.rounds)) / step[1] for _, done, seconds in each
        ]
        found.append({
            "guesser": name, "k": k, "tau": statistics.median(tau), "cost": statistics.median(cost),
            "predicted": statistics.median(speedup(t, c - 1) for t, c in zip(tau, cost)),
            "speedup": statistics.median(p / s for p, (s, _, _) in zip(plain, each)),
            "acceptance": [statistics.mean(kept) if kept else 0.0 for kept in reached],
            "draft_ms": 1e3 * sum(seconds for _, _, seconds in each) / len(rounds),
        })  # fmt: skip
        one = found[-1]
        print(f"{name}, k {k}: τ {one['tau']:.2f}, cost {one['cost']:.2f}, predicted {one['predicted']:.2f}, measured {one['speedup']:.2f}", flush=True)
    return found


def kinds(model: Transformer) -> list[dict[str, Any]]:
    """Share of first guesses kept, by kind and temperature; lookup is asked afterwards of the finished texts."""
    groups = {"code": held_out.group("code").prompts[:6], "JSON": JSON, "prose": held_out.group("prose").prompts[:6], "stories": held_out.group("creative").prompts[:6]}
    found = []
    for kind, prompts in groups.items():
        for temperature in (0.0, 1.0):
            sampling = [Sampling(temperature=temperature, seed=i) for i in range(len(prompts))]
            ids = [model.tokenizer.encode(prompt)[-90:] for prompt in prompts]
            runs = speculate(model, ids, DraftModel(first_layers(model, LAYERS), 1), max_new_tokens=40, ignore_eos=True, sampling=sampling)
            first = [r.accepted > 0 for one in runs for r in one.rounds if r.depth]
            looked = [hit for one in runs for hit in looked_up([*one.completion.prompt_ids], [*one.completion.token_ids])]
            found.append({
                "kind": kind, "temperature": temperature, "places": len(looked),
                "kept": {"prompt lookup": statistics.mean(looked), f"first {LAYERS} layers": statistics.mean(first)},
            })  # fmt: skip
            print(kind, temperature, {name: round(share, 2) for name, share in found[-1]["kept"].items()}, flush=True)
    return found


def looked_up(prompt: list[int], new: list[int]) -> list[bool]:
    """At which places of a finished text lookup would have named the next token."""
    lookup, hits = NGram(1), []
    for i, token in enumerate(new):
        (tree,) = lookup.propose([Ask(0, tuple(prompt + new[:i]), 1, Sampling(), Draws(Sampling()))])
        hits.append(tree.tokens[:1] == (token,))
    return hits


def main() -> None:
    """Measure, print, and store with ``--save``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row in bench/results")
    parser.add_argument("--prompts", type=int, default=4, help="edit tasks to sweep k on")
    options = parser.parse_args()
    dtype, _ = fast_dtype("cpu")
    model = kvedu.load(dtype=dtype, device="cpu").pack()
    bench = Bench(model)
    step = bench.passes()
    print("rows and ms of a pass:", {n: round(1e3 * seconds, 1) for n, seconds in step.items()}, flush=True)
    values: dict[str, Any] = {
        "held_out_sha256": held_out.sha256(), "dtype": str(dtype).removeprefix("torch."), "threads": torch.get_num_threads(), "tokens": TOKENS,
        "prompts": options.prompts, "pass_rows": list(step), "pass_ms": [1e3 * seconds for seconds in step.values()],
        "sweep": sweep(bench, [model.tokenizer.encode(text) for text in held_out.group("edit").prompts[: options.prompts]], step),
        "kinds": kinds(model),
    }  # fmt: skip
    if options.save:
        command = "python bench/bench_guessing.py" + "".join(f" {argument}" for argument in sys.argv[1:])
        print("stored in", save_row("guessing", values, command=command, folder=ROOT / "bench" / "results").relative_to(ROOT))


if __name__ == "__main__":
    main()
