"""Data of the splits figure: the programs of a decode launch, laid over a chip's multiprocessors."""

from __future__ import annotations

from typing import Any, Sequence

from kvedu.kernels.launch import Chip
from kvedu.kernels.schedule import resident
from kvedu.kernels.splits import blocks_for

CHIPS = {75: "T4", 80: "A100", 90: "H100, H200", 100: "B200"}
"""Compute capability and the chips that are meant; their multiprocessors are those of the SXM (T4: PCIe) datasheets."""
H, D, ITEMSIZE = 32, 128, 2
KV_HEADS = (1, 2, 4, 8, 32)


def chips() -> list[dict[str, Any]]:
    """Each chip: its multiprocessors, and for each number of KV heads the tile of keys and the programs held at once."""
    found = []
    for capability, name in CHIPS.items():
        chip = Chip.known(capability)
        found.append({
            "name": name,
            "processors": chip.processors,
            "tiles": {str(K): blocks_for(chip, H // K, H // K, D, ITEMSIZE)["block_s"] for K in KV_HEADS},
            "resident": {str(K): resident(chip, H // K, D, ITEMSIZE) for K in KV_HEADS},
        })  # fmt: skip
    return found


def data(predict: dict[str, Any] | None = None, kv_heads: Sequence[int] = KV_HEADS, **start: Any) -> dict[str, Any]:
    """``start`` sets controls: chip, batch, kv, context, lengths ("alike" or "one long"), page, splits (0: by the rule), wave."""
    one = Chip.known(90)
    asked = predict or {
        "question": f"One sequence of 32,768 tokens, 8 KV heads, a chip of {one.processors} multiprocessors. One program walks over "
        "the keys of one KV head. How many multiprocessors work?",
        "choices": ["all of them", f"{one.processors // 2}", "8"],
        "answer": 2,
        "because": f"There are 8 programs, so {one.processors - 8} multiprocessors never get one. More keys do not make more programs.",
    }
    return {
        "figure": "splits",
        "title": "Programs of a decode launch on a chip",
        "heads": H,
        "head_dim": D,
        "bytes_per_element": ITEMSIZE,
        "kv_heads": list(kv_heads),
        "chips": chips(),
        "start": start,
        "predict": asked,
    }
