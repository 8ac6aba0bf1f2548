"""Data of the tiles figure: real scores of a few heads, and how FlashAttention's kernel walks over them."""

from __future__ import annotations

from typing import Any, Sequence

from kvedu.kernels.walk import walk

ROWS, KEYS = 16, 16
"""The blocks that the figure starts with, and that its question asks about."""


def data(heads: Sequence[dict[str, Any]], tokens: Sequence[str], group: int, head_dim: int, **start: Any) -> dict[str, Any]:
    """``heads``: {"name", "scores": for each token the base-2 scores of the keys that it sees}. ``group`` query heads share
    the KV head. ``start`` sets controls: head, rows (query rows in a block), keys (in a tile), step (tiles loaded)."""
    T = len(tokens)
    blocks = walk(T, 0, group, ROWS, KEYS, edges=False)
    loaded, grid = sum(len(block.tiles) for block in blocks), len(blocks) * -(-T // KEYS)
    choices = [f"{grid - loaded} of {grid}", "none: the mask hides them afterwards", f"{grid // 2} of {grid}, exactly half"]
    return {
        "figure": "tiles",
        "title": "Tiles of attention",
        "heads": list(heads),
        "tokens": list(tokens),
        "group": group,
        "head_dim": head_dim,
        "start": dict(start),
        "predict": {
            "question": f"{T} tokens, causal; a block has {ROWS} query rows ({ROWS // group} tokens of {group} heads), a tile {KEYS} keys. How many of the {grid} tiles are never loaded?",
            "choices": choices,
            "answer": 0,
            "because": "A block stops at its own last token. The tile in which that token stands is loaded and masked, so it is less than half; with longer texts it tends to half.",
        },
    }
