"""What it costs to keep the cache in host memory or on disk: time per decoded token against the plain cache, bytes moved.

    python bench/bench_offloaded.py [--save] [--context 1024] [--tokens 24] [--rounds 3] [--folder FOLDER]

The three caches take turns, a round each, so that a machine's moods fall on all of them; the median round counts. On a CPU
nothing hides the copies, so this is the whole overhead; on a GPU the next layer's copy runs while a layer computes. The
disk's file has just been written and is read from the system's free memory if there is room: the row says how much there is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import kvedu
from kvedu import OffloadedCache, StaticCache, Transformer, texts
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.book.rows import save_row
from kvedu.caches.contract import Cache
from kvedu.model.dtype import choose_device, choose_dtype
from kvedu.units import binary

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Fill each cache alike, decode in turns, print, and store with ``--save``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row in bench/results")
    parser.add_argument("--context", type=int, default=1024, help="tokens cached when decoding begins")
    parser.add_argument("--tokens", type=int, default=24, help="tokens decoded in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the file on disk goes")
    options = parser.parse_args()
    device = choose_device()
    dtype = choose_dtype(device)[0]
    model = kvedu.load(dtype=dtype, device=device)
    ids = model.tokenizer.encode(texts.all_text())[: options.context]
    room = {"max_length": options.context + options.tokens, "dtype": dtype, "device": device}
    caches: dict[str, Cache] = {
        "plain": StaticCache(model.config, **room),
        "host memory": OffloadedCache(model.config, **room),
        "disk": OffloadedCache(model.config, folder=options.folder, **room),
    }
    seqs = {name: fill(model, cache, ids) for name, cache in caches.items()}
    seconds: dict[str, list[float]] = {name: [] for name in caches}
    said: dict[str, list[int]] = {}
    for _ in range(options.rounds):
        for name, cache in caches.items():
            start = time.perf_counter()
            said[name] = decode(model, cache, seqs[name], ids[-1], options)
            seconds[name].append((time.perf_counter() - start) / options.tokens)
    assert said["plain"] == said["host memory"] == said["disk"], "the tokens must not depend on where the cache lives"
    cases = [case(name, caches[name], statistics.median(seconds[name]), model, options) for name in caches]
    plain = cases[0]["decode_s_per_token"]
    print(f"\n{'':14}{'ms per token':>14}{'of plain':>10}{'in per token':>16}{'out per token':>16}{'held':>14}{'on the device':>16}")
    for one in cases:
        one["of_plain"] = one["decode_s_per_token"] / plain
        print(
            f"{one['case']:14}{one['decode_s_per_token'] * 1e3:>14.1f}{one['of_plain']:>10.2f}{binary(one['in_bytes_per_token']):>16}"
            f"{binary(one['out_bytes_per_token']):>16}{binary(one['held_bytes']):>14}{binary(one['device_bytes']):>16}"
        )
    values: dict[str, Any] = {
        "context_tokens": options.context, "decoded_tokens": options.tokens, "rounds": options.rounds,
        "dtype": str(dtype).removeprefix("torch."), "device": str(device), "threads": torch.get_num_threads(),
        "free_memory_bytes": os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None,
        "cases": cases,
    }  # fmt: skip
    if options.save:
        command = "python bench/bench_offloaded.py" + "".join(f" {argument}" for argument in sys.argv[1:])
        print("stored in", os.path.relpath(save_row("offloaded", values, command=command, folder=ROOT / "bench" / "results")))


@torch.inference_mode()
def fill(model: Transformer, cache: Cache, ids: list[int]) -> int:
    """A sequence that holds all but the last of these tokens."""
    seq = cache.add()
    with cache.step({seq: len(ids) - 1}) as view:
        model(torch.tensor(ids[:-1], device=model.device), view, view.last_rows)
    return seq


@torch.inference_mode()
def decode(model: Transformer, cache: Cache, seq: int, token: int, options: argparse.Namespace) -> list[int]:
    """Greedy tokens after the context, which is there again when this ends; the cache's counts are those of this round."""
    tokens: list[int] = []
    if isinstance(cache, OffloadedCache):
        cache.bytes_in = cache.bytes_out = cache.peak_device_bytes = 0
    for _ in range(options.tokens):
        with cache.step({seq: 1}) as view:
            token = int(model(torch.tensor([token], device=model.device), view, view.last_rows).argmax())
        tokens.append(token)
    cache.truncate(seq, options.context - 1)
    return tokens


def case(name: str, cache: Cache, seconds: float, model: Transformer, options: argparse.Namespace) -> dict[str, Any]:
    """One cache's line; what it moved must be what the formula says."""
    moved = (cache.bytes_in, cache.bytes_out) if isinstance(cache, OffloadedCache) else (0, 0)
    if any(moved):
        size, before = model.dtype.itemsize, range(options.context - 1, options.context - 1 + options.tokens)
        wanted = sum(kv_cache_bytes(model.config, n, bytes_per_element=size) for n in before)
        assert moved == (wanted, kv_cache_bytes(model.config, options.tokens, bytes_per_element=size))
    return {
        "case": name, "decode_s_per_token": seconds, "in_bytes_per_token": moved[0] / options.tokens,
        "out_bytes_per_token": moved[1] / options.tokens, "held_bytes": cache.nbytes,
        "device_bytes": cache.peak_device_bytes if isinstance(cache, OffloadedCache) else cache.nbytes,
    }  # fmt: skip


if __name__ == "__main__":
    main()
