"""Instructions of the decode kernels' main loop, over 16-bit numbers and over codes, from their machine code: no GPU is needed.

    python bench/bench_instructions.py [--save] [--capabilities 75 80 90 100]

The launches are those of an 8B Llama's decode (32 query heads, 8 KV heads of 128), compiled ahead of time as CI does.
Run without TRITON_INTERPRET.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch

from kvedu.book.rows import save_row
from kvedu.caches.formats import Format, float8, integer
from kvedu.kernels.instructions import longest_loop
from kvedu.kernels.launch import Chip, Launch, interpreted, missing
from kvedu.kernels.paged_attention_triton import plan_attention
from kvedu.kernels.quantized_attention_triton import plan_quantized_attention
from kvedu.kernels.quantized_pages import CodedPages, Exact

RESULTS = Path(__file__).resolve().parent / "results"
H, K, D, C, B, J = 32, 8, 128, 16, 32, 256
FORMATS: dict[str, tuple[Format, Format]] = {
    "int8": (integer(8, D), integer(8, D)),
    "int8, symmetric": (integer(8, D, symmetric=True), integer(8, D, symmetric=True)),
    "int8, groups of 32": (integer(8, 32), integer(8, 32)),
    "e4m3": (float8(), float8()),
    "int4": (integer(4, D), integer(4, D)),
    "KIVI, 4 bits": (integer(4, 16, "tokens"), integer(4, 32)),
    "int2": (integer(2, D), integer(2, D)),
}


def meta(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def launches(chip: Chip, dtype: torch.dtype) -> dict[str, tuple[Launch, float, float]]:
    """Each kernel's launch, and the stored bytes of an element of keys and of values."""
    q, tables = meta(B, H, D, dtype=dtype), meta(B, J, dtype=torch.int32)
    pages = meta(9000, C, K, D, dtype=dtype)
    plain = plan_attention(q, pages, pages, tables, meta(B, 3, dtype=torch.int64), torch.empty_like(q), chip=chip, one_each=True)[0]
    found = {"16 bits": (plain, 2.0, 2.0)}
    for name, by_words in [(name, True) for name in FORMATS] + [(name, False) for name in FORMATS]:
        formats = FORMATS[name]
        sides = [CodedPages(format, 2, C, K, D, torch.device("cpu")) for format in formats]
        exact = Exact(meta(B, K, D, dtype=dtype), meta(B, 16, K, D, dtype=dtype))
        planned = plan_quantized_attention(
            q, *sides, exact, exact, tables, meta(B, 4, dtype=torch.int64), torch.empty_like(q), chip=chip, residual=0, unit=sides[0].format.step,
            by_words=by_words, one_each=True,
        )[0]  # fmt: skip
        found[name if by_words else f"{name}, code by code"] = planned, *(format.sized.bits_per_element / 8 for format in formats)
    return found


def measure(capability: int) -> list[dict[str, Any]]:
    """A row for each kernel: instructions of a pass, its keys, and instructions and bytes of an element."""
    chip = Chip.known(capability)
    dtype = torch.bfloat16 if chip.bf16 else torch.float16
    rows = []
    for name, (launch, key_bytes, value_bytes) in launches(chip, dtype).items():
        loop, tile, threads = longest_loop(launch, capability), launch.constants["BLOCK_S"], 32 * launch.warps
        rows.append({
            "capability": capability, "format": name, "instructions": loop.instructions, "tile": tile, "threads": threads, "kinds": loop.kinds,
            "per_element": loop.instructions * threads / (2 * tile * D), "bytes_per_element": (key_bytes + value_bytes) / 2,
        })  # fmt: skip
        print(f"{capability}  {name:32}{loop.instructions:6} instructions a tile of {tile}: {rows[-1]['per_element']:5.2f} an element, {rows[-1]['bytes_per_element']:.3f} bytes", flush=True)
    return rows


def main() -> int:
    """Compile, count, and store."""
    parser = argparse.ArgumentParser(description="Instructions of the decode kernels' loops.")
    parser.add_argument("--save", action="store_true", help="store the table as a row of bench/results")
    parser.add_argument("--capabilities", type=int, nargs="+", default=[75, 80, 90, 100])
    options = parser.parse_args()
    if missing() or interpreted():
        print(f"nothing to compile: {missing() or 'Triton interprets in this process; unset TRITON_INTERPRET'}")
        return 1
    rows = [row for capability in options.capabilities for row in measure(capability)]
    if options.save:
        import triton

        command = "python bench/bench_instructions.py" + "".join(f" {argument}" for argument in sys.argv[1:])
        values = {"triton": triton.__version__, "heads": H, "kv_heads": K, "head_dim": D, "rows": rows}
        print("stored in", os.path.relpath(save_row("instructions", values, command=command, folder=RESULTS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
