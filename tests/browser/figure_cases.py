"""Each figure once, with its own data or a stored run, as a page of its own."""

import importlib
import json
from pathlib import Path
from typing import Any

from preview_figure import standalone

from kvedu.viz.sources import figure_names

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "book" / "figures"


def figure_data() -> dict[str, dict[str, Any]]:
    """Figure → data: a stored run where there is one, else what its module makes."""
    stored = {}
    for path in sorted(FIGURES.glob("*.json")):
        data = json.loads(path.read_text("utf-8"))
        stored.setdefault(data["figure"], data)
    return {name: stored.get(name) or importlib.import_module(f"kvedu.viz.{name}").data() for name in figure_names()}


def write_page(folder: Path, name: str, data: dict[str, Any]) -> str:
    """Write the figure's page; its address."""
    path = folder / f"{name}.html"
    path.write_text(standalone(name, data), encoding="utf-8")
    return path.as_uri()
