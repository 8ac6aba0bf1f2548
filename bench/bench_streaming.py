"""A text of 100,000 tokens through a window that holds 260: perplexity along the stream, and memory that stays.

    python bench/bench_streaming.py [--save] [--tokens 100000] [--window 256] [--work FOLDER]

The frozen texts, read again and again, so that the same words come round near and far in the stream; a window of this
size cannot remember the time before. Two caches: sinks kept (4) and none. Chunks of the window's size; mean loss
of every 5,000 tokens. What is done is kept in FOLDER (``_build/bench_streaming``), every 10,000 tokens, and a run
that was stopped goes on from there. About 10 minutes of one core with bf16 units.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import kvedu
from kvedu import StreamingCache, Transformer, texts
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.book.rows import save_row
from kvedu.model.dtype import fast_dtype
from kvedu.units import binary

ROOT = Path(__file__).resolve().parents[1]
SEGMENT, KEPT = 5_000, 10_000
SINKS = (4, 0)


@dataclass
class Stream:
    """One reading: the cache, the sequence in it, and what was seen so far."""

    cache: StreamingCache
    seq: int
    losses: list[float] = field(default_factory=list)
    sizes: set[int] = field(default_factory=set)


def main() -> None:
    """Read the stream once with each number of sinks; print, and store with ``--save``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row in bench/results")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--work", type=Path, default=ROOT / "_build" / "bench_streaming")
    options = parser.parse_args()
    dtype, why = fast_dtype("cpu")
    model = kvedu.load(dtype=dtype, device="cpu").pack()
    text = texts.all_text()
    once = model.tokenizer.encode(text)
    ids = (once * (options.tokens // len(once) + 1))[: options.tokens + 1]
    readings = [read(model, ids, sinks, options) for sinks in SINKS]
    values: dict[str, Any] = {
        "text_sha256": hashlib.sha256(text.encode()).hexdigest(), "tokens_of_text": len(once), "stream_tokens": options.tokens,
        "window_tokens": options.window, "segment_tokens": SEGMENT, "dtype": str(dtype).removeprefix("torch."), "dtype_why": why,
        "readings": readings,
    }  # fmt: skip
    for reading in readings:
        along = " ".join(f"{p:.1f}" for p in reading["segment_perplexities"])
        print(f"{reading['sinks']} sinks: perplexity {reading['perplexity']:.2f}, {binary(reading['cache_bytes'])} throughout; along: {along}")
    if options.save:
        command = "python bench/bench_streaming.py" + "".join(f" {argument}" for argument in sys.argv[1:])
        print("stored in", os.path.relpath(save_row("streaming", values, command=command, folder=ROOT / "bench" / "results")))


@torch.inference_mode()
def read(model: Transformer, ids: list[int], sinks: int, options: argparse.Namespace) -> dict[str, Any]:
    """The stream once, with ``sinks`` sinks, from where an earlier run left it."""
    path = kept_at(options.work, model, ids, sinks, options.window)
    if path.is_file():
        stream: Stream = torch.load(path, weights_only=False)  # written by this script
    else:
        cache = StreamingCache(model.config, window=options.window, sinks=sinks, dtype=model.dtype)
        stream = Stream(cache, cache.add())
    cache, n = stream.cache, len(ids) - 1
    while (start := len(stream.losses)) < n:
        new = torch.tensor(ids[start : min(start + options.window, n) + 1])
        with cache.step({stream.seq: len(new) - 1}) as view:
            logits_NV = model(new[:-1], view)
        stream.losses += cross_entropy(logits_NV.float(), new[1:], reduction="none").tolist()
        stream.sizes.add(cache.nbytes)
        done = len(stream.losses)
        if done // KEPT > start // KEPT or done == n:
            keep(stream, path)
            print(f"{sinks} sinks: {done:,} of {n:,} tokens, {math.exp(sum(stream.losses) / done):.2f}", flush=True)
    (held,) = stream.sizes  # constant: one size from the first chunk to the last
    assert held == kv_cache_bytes(model.config, n, bytes_per_element=model.dtype.itemsize, held=sinks + options.window)
    segments = [stream.losses[i : i + SEGMENT] for i in range(0, n, SEGMENT)]
    return {
        "sinks": sinks, "perplexity": math.exp(sum(stream.losses) / n), "cache_bytes": held,
        "positions_held": cache.length(stream.seq), "tokens_seen": cache.seen(stream.seq),
        "segment_perplexities": [math.exp(sum(losses) / len(losses)) for losses in segments],
    }  # fmt: skip


def kept_at(work: Path, model: Transformer, ids: list[int], sinks: int, window: int) -> Path:
    """The file of a reading, named by what its numbers depend on: stream, settings and the sources of the window."""
    digest = hashlib.sha256(repr((ids, window, str(model.dtype))).encode())
    for name in ("caches/ring", "caches/window", "caches/window_view", "caches/streaming", "kernels/rope"):
        digest.update((ROOT / "src" / "kvedu" / f"{name}.py").read_bytes())
    return work / f"{sinks}-sinks-{digest.hexdigest()[:12]}.pt"


def keep(stream: Stream, path: Path) -> None:
    """Written beside its place and renamed, so that a stop in the middle leaves the older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save(stream, part)
    part.replace(path)


if __name__ == "__main__":
    main()
