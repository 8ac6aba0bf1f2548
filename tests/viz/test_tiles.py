"""The tiles figure walks as the kernel does, and its running softmax and bytes are the library's."""

import json
import math
from pathlib import Path

import pytest
import torch

from kvedu.kernels.traffic import attention_traffic, naive_traffic, on_chip
from kvedu.kernels.walk import walk
from kvedu.viz import still
from kvedu.viz.node import evaluate

STORED = json.loads((Path(__file__).resolve().parents[2] / "book" / "figures" / "17_tiles.json").read_text("utf-8"))
GRID = [(T, G, rows, keys) for T in (1, 16, 45, 64) for G in (1, 3, 4) for rows in (16, 32, 64) for keys in (8, 16, 32)]


def test_the_walk_is_the_kernels() -> None:
    """``kernels.walk`` itself is held to the kernel's loads in tests/kernels/test_walk.py."""
    found = evaluate("tiles", [("walk", [T, old, G, rows, keys]) for T, G, rows, keys in GRID for old in (0, 20)])
    wanted = [walk(T, old, G, rows, keys, edges=rows > 32) for T, G, rows, keys in GRID for old in (0, 20)]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [(b["first"], b["end"], [(t["first"], t["end"], t["masked"]) for t in b["tiles"]]) for b in ours] == [
            (b.first, b.end, [(t.first, t.end, t.masked) for t in b.tiles]) for b in theirs
        ]


def test_bytes_on_a_grid() -> None:
    tiled = evaluate("tiles", [("tiledBytes", [T, 7, G, 1, 64, rows, 2]) for T, G, rows, _ in GRID])
    assert tiled == [attention_traffic([(T, 7)], G, 1, 64, rows, keys).bytes for T, G, rows, keys in GRID]
    assert evaluate("tiles", [("naiveBytes", [T, 7, G, 1, 64, 2]) for T, G, _, _ in GRID]) == [naive_traffic(T, 7, G, 1, 64).bytes for T, G, _, _ in GRID]
    assert evaluate("tiles", [("onChip", [rows, keys, 64, 2]) for _, _, rows, keys in GRID]) == [on_chip(rows, keys, 64) for _, _, rows, keys in GRID]


@pytest.mark.parametrize("keys", [8, 16, 32])
def test_the_running_softmax_ends_at_the_whole_rows(keys: int) -> None:
    """Maximum plus logarithm of the sum is the row's log-sum, however it was cut."""
    for head in STORED["heads"]:
        for t in (0, 7, 44):
            row = head["scores"][t]
            tiles = [{"first": s, "end": s + keys} for s in range(0, t + 1, keys)]
            last = evaluate("tiles", [("running", [row, tiles])])[0][-1]
            whole = torch.logsumexp(torch.tensor(row, dtype=torch.float64) * math.log(2), 0).item() / math.log(2)
            assert last["m"] == max(row) and last["m"] + math.log2(last["l"]) == pytest.approx(whole, abs=1e-6)


def test_the_sentence_and_the_question() -> None:
    blocks = walk(45, 0, 3, 16, 16, edges=False)
    loaded = sum(len(block.tiles) for block in blocks)
    assert f"{loaded} tiles of {len(blocks) * 3}" in still("tiles", STORED).say
    assert STORED["predict"]["choices"][0] == f"{len(blocks) * 3 - loaded} of {len(blocks) * 3}"
    whole = still("tiles", STORED, {"step": loaded})
    asked = attention_traffic([(45, 0)], 3, 1, 64, 16, 16)
    assert dict(whole.readout)["read so far"] == f"{asked.read / 1e3:.1f} kB"
    assert still("tiles", STORED, {"step": 999}).state["step"] == loaded, "a step past the end is mended"


def test_some_row_shrinks() -> None:
    """In one of the heads a later tile brings a larger score: what was summed shrinks."""
    said = [still("tiles", STORED, {"head": head["name"], "step": step}).say for head in STORED["heads"] for step in range(3, 18, 3)]
    assert any("shrinks by" in one for one in said)
