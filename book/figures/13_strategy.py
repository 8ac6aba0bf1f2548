"""The decision tool, with the losses that were measured on the real model."""

from typing import Any

from kvedu.book.rows import load_row
from kvedu.viz import strategy


def run() -> dict[str, Any]:
    """Share of needles lost against the full cache, by strategy; everything else is computed."""
    row = load_row("strategies")
    full = row["bf16, as trained"]["needle"]
    losses = {name: round(max(0.0, 1 - damage["needle"] / full), 3) for name, damage in row.values.items() if name != "settings"}
    return strategy.data(losses, source=f"needles lost by SmolLM2-135M in contexts of {row['settings']['length']} tokens (window: a quarter of them), {row.cite()}")
