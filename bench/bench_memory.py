"""What decoding holds in memory, against the formula: weights, a packed head's copy, and the cache.

    python bench/bench_memory.py [--tokens 1024] [--sequences 16]

Every tensor alive in the process is found through the garbage collector and each storage counted once, so
nothing that the library forgets to count is missed. Ends with status 1 where the sum is more than 5 % off.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path

import torch

import kvedu
from kvedu import StaticCache, Transformer
from kvedu.analysis.memory import kv_cache_bytes, weight_bytes
from kvedu.book.rows import save_row
from kvedu.model.dtype import fast_dtype
from kvedu.units import binary

ALLOWED = 0.05
RESULTS = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Measure the plain fp32 model and the packed one, one sequence and several; print, store, judge."""
    parser = argparse.ArgumentParser(description="Bytes held while decoding, against the formula.")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of each sequence when it decodes")
    parser.add_argument("--sequences", type=int, default=16, help="sequences of the larger case")
    options = parser.parse_args()
    cases = [
        measure(label, packed, dtype, sequences, options.tokens)
        for label, packed, dtype in (("plain fp32", False, torch.float32), ("packed", True, fast_dtype("cpu")[0]))
        for sequences in (1, options.sequences)
    ]
    print(f"\n{'':14}{'sequences':>10}{'weights':>13}{'head copy':>13}{'cache':>13}{'formula':>13}{'held':>13}{'ratio':>8}")
    for case in cases:
        sizes = (binary(case[f"{part}_bytes"], 1) for part in ("weights", "head_copy", "cache", "formula", "held"))
        print(f"{case['case']:14}{case['sequences']:>10}" + "".join(f"{size:>13}" for size in sizes) + f"{case['ratio']:>8.4f}")
    worst = max(abs(case["ratio"] - 1) for case in cases)
    print(f"\nheld / formula is within {worst:.2%} everywhere; {ALLOWED:.0%} are allowed")
    RESULTS.mkdir(exist_ok=True)
    command = "python bench/bench_memory.py" + "".join(f" {argument}" for argument in sys.argv[1:])
    print("stored in", os.path.relpath(save_row("memory", {"cases": cases, "worst_off": worst}, command=command, folder=RESULTS)))
    return 0 if worst <= ALLOWED else 1


def measure(label: str, packed: bool, dtype: torch.dtype, sequences: int, tokens: int) -> dict[str, float | int | str]:
    """Fill a cache with ``tokens`` - 1 tokens of each sequence, decode one more, and count what is alive in that step."""
    before = alive()
    assert not before, f"{len(before)} tensors are left over from the case before"
    model = kvedu.load(dtype=dtype, device="cpu")
    if packed:
        model.pack()
    copied = model.head.packed is not None and model.config.tied
    cache = StaticCache(model.config, max_sequences=sequences, max_length=tokens, dtype=dtype)
    held = decode(model, cache, sequences, tokens)
    weights = weight_bytes(model.config, dtype.itemsize)
    head_copy = model.config.V * model.config.M * dtype.itemsize if copied else 0
    kv = kv_cache_bytes(model.config, tokens, sequences, dtype.itemsize)
    formula = weights + head_copy + kv
    print(f"{label}, {sequences} x {tokens} tokens: held {held:,} bytes, formula {formula:,}", flush=True)
    return {
        "case": label, "dtype": str(dtype).removeprefix("torch."), "sequences": sequences, "tokens": tokens,
        "weights_bytes": weights, "head_copy_bytes": head_copy, "cache_bytes": kv, "formula_bytes": formula,
        "held_bytes": held, "ratio": held / formula,
    }  # fmt: skip


@torch.inference_mode()
def decode(model: Transformer, cache: StaticCache, sequences: int, tokens: int) -> int:
    """Bytes alive at the end of a decode step, its logits and masks included."""
    ids = torch.randint(0, model.config.V, (tokens - 1,), generator=torch.Generator().manual_seed(0))
    first = cache.add()
    with cache.step({first: len(ids)}) as view:
        model(ids, view, view.last_rows)
    seqs = [first, *(cache.fork(first) for _ in range(sequences - 1))]
    del view, ids
    with cache.step({seq: 1 for seq in seqs}) as view:
        logits_BV = model(torch.arange(sequences), view, view.last_rows)
        assert logits_BV.shape == (sequences, model.config.V)
        return sum(alive().values())


def alive() -> dict[int, int]:
    """Storage address -> bytes, of every tensor alive in this process; a packed one has only its elements to count."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if not issubclass(type(thing), torch.Tensor):
            continue
        if thing.layout == torch.strided:
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        else:
            storages[id(thing)] = thing.numel() * thing.element_size()
    return {address: size for address, size in storages.items() if size}


if __name__ == "__main__":
    sys.exit(main())
