"""What a quantized cache of half a gigabyte adds to a process, against the formula: scales, zero points, tails and all.

    python bench/bench_quantized_memory.py [--save] [--megabytes 520]

Each cache is filled in a fresh process with keys and values of SmolLM2's shape; resident memory is read from the system (Linux)
before and after, and the allocator is told not to hold on to what was freed. Ends with status 1 where a process grew by more than 5 % more or less than the formula says.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Callable

import torch

from kvedu import ConcatCache, KVFormat, PagedQuantizedCache, QuantizedCache
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.book.rows import save_row
from kvedu.caches.contract import Cache
from kvedu.config import ModelConfig
from kvedu.units import binary

ALLOWED = 0.05
RESULTS = Path(__file__).resolve().parent / "results"
PAGE, CHUNK = 64, 2048


def paged(format: KVFormat) -> Callable[[ModelConfig, int], tuple[Cache, int]]:
    """Pages for so many tokens, and the formula: the tokens as codes, one tail in full."""

    def make(config: ModelConfig, tokens: int) -> tuple[Cache, int]:
        cache = PagedQuantizedCache(config, format=format, n_pages=tokens // PAGE, page_size=PAGE, max_sequences=1, dtype=torch.bfloat16)
        codes = kv_cache_bytes(config, tokens, 1, 2, keys=format.keys.sized, values=format.values.sized)
        return cache, codes + kv_cache_bytes(config, cache.window_kept, 1, 2)

    return make


def growing(format: KVFormat) -> Callable[[ModelConfig, int], tuple[Cache, int]]:
    """A cache that holds what came, and the formula with its tail."""

    def make(config: ModelConfig, tokens: int) -> tuple[Cache, int]:
        cache = QuantizedCache(config, keys=format.keys, values=format.values, residual=format.residual, dtype=torch.bfloat16)
        sides = {"keys": format.keys.sized, "values": format.values.sized}
        return cache, kv_cache_bytes(config, tokens, 1, 2, **sides, residual=format.residual)

    return make


def plain(config: ModelConfig, tokens: int) -> tuple[Cache, int]:
    """bf16, for comparison."""
    return ConcatCache(config, dtype=torch.bfloat16), kv_cache_bytes(config, tokens)


CASES: dict[str, Callable[[ModelConfig, int], tuple[Cache, int]]] = {
    "bf16": plain,
    "paged int8": paged(KVFormat.int8()),
    "paged fp8": paged(KVFormat.fp8()),
    "paged KIVI, 4 bits": paged(KVFormat.kivi(bits=4)),
    "paged KIVI, 2 bits": paged(KVFormat.kivi(bits=2)),
    "growing int8": growing(KVFormat.int8()),
    "growing KIVI, 4 bits": growing(KVFormat.kivi(bits=4)),
}


def resident() -> int:
    """Bytes of this process that lie in memory, as Linux counts them, once what was freed is given back to it."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not say what is resident")


@torch.inference_mode()
def measure(name: str, megabytes: int) -> dict[str, int | float | str]:
    """Fill one cache with as many tokens as the formula makes ``megabytes`` of, and read the process before and after."""
    config = known_model("SmolLM2-135M").config
    per_token = CASES[name](config, 64 * CHUNK)[1] / (64 * CHUNK)
    tokens = int(megabytes * 1e6 / per_token) // PAGE * PAGE
    k_NKD, v_NKD = torch.randn(2, CHUNK, config.K, config.D).bfloat16()
    fill(CASES[name](config, CHUNK)[0], CHUNK, k_NKD, v_NKD)  # kernels are compiled and loaded, buffers made
    before = resident()
    cache, formula = CASES[name](config, tokens)
    fill(cache, tokens, k_NKD, v_NKD)
    grown = resident() - before
    return {
        "cache": name, "tokens": tokens, "formula_bytes": formula, "nbytes": cache.nbytes, "grown_bytes": grown,
        "ratio": grown / formula,
    }  # fmt: skip


def fill(cache: Cache, tokens: int, k_NKD: torch.Tensor, v_NKD: torch.Tensor) -> None:
    """One sequence, in chunks."""
    seq = cache.add()
    for start in range(0, tokens, CHUNK):
        count = min(CHUNK, tokens - start)
        with cache.step({seq: count}) as view:
            for layer in range(cache.n_layers):
                view.append(layer, k_NKD[:count], v_NKD[:count])


def main() -> int:
    parser = argparse.ArgumentParser(description="Process memory of quantized caches, against the formula.")
    parser.add_argument("--save", action="store_true", help="store bench/results/quantized_memory.json")
    parser.add_argument("--megabytes", type=int, default=540)
    options = parser.parse_args()
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # glibc: what is larger is asked of the system, and given back when freed
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = []
        for name in CASES:
            rows.append(row := pool.apply(measure, (name, options.megabytes)))
            print(
                f"{name:22} {row['tokens']:9,} tokens   formula {binary(row['formula_bytes'], 1)}   grown by "
                f"{binary(row['grown_bytes'], 1)}   ratio {row['ratio']:.4f}",
                flush=True,
            )
    worst = max(abs(row["ratio"] - 1) for row in rows)
    print(f"within {worst:.2%} everywhere; {ALLOWED:.0%} are allowed")
    if options.save:
        command = "python bench/bench_quantized_memory.py" + "".join(f" {a}" for a in sys.argv[1:])
        print("stored in", save_row("quantized_memory", {"rows": rows, "worst_off": worst}, command=command, folder=RESULTS).name)
    return 0 if worst <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
