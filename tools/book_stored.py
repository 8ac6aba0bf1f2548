"""Kernel pages where Triton has no wheel (macOS): they show the outputs that a machine with Triton gave.

    python tools/book_stored.py        # stores them, from the last build of this machine, in book/stored

A kernel page is a chapter whose code says ``use_interpreter()``. Where Triton is installed it is executed like any other
chapter and what is stored is not looked at. Elsewhere its cells get the stored outputs, and the page says where they come from.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from kvedu.book.provenance import describe, provenance

ROOT = Path(__file__).resolve().parents[1]
CALL = "use_interpreter()"
COMMAND = "python tools/book_stored.py"


class StoredError(Exception):
    """Why a page cannot be shown from what is stored, in one sentence."""


def is_kernel_page(notebook: NotebookNode) -> bool:
    """Whether its cells need Triton."""
    return any(cell.cell_type == "code" and CALL in cell.source for cell in notebook.cells)


def triton_here() -> bool:
    """Whether Triton is installed; it is not imported to find out."""
    return find_spec("triton") is not None


def stored_file(root: Path, page: Path) -> Path:
    """Where a page's outputs are stored."""
    return root / "book" / "stored" / f"{page.stem}.json"


def fill(notebook: NotebookNode, stored: Path) -> None:
    """Give the notebook's cells the stored outputs, and its first one a line that says so. Raises ``StoredError``."""
    if not stored.is_file():
        raise StoredError(f"Triton is not installed here, and {stored.name} is not stored; run `{COMMAND}` where it is")
    data = json.loads(stored.read_text("utf-8"))
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.source for cell in cells] != [one["source"] for one in data["cells"]]:
        raise StoredError(f"Triton is not installed here, and {stored.name} is older than the page; run `{COMMAND}` where it is")
    for number, (cell, one) in enumerate(zip(cells, data["cells"]), 1):
        cell.outputs = [nbformat.from_dict(output) for output in one["outputs"]]
        cell.execution_count = number
    cells[0].outputs.insert(0, nbformat.v4.new_output("display_data", {"text/plain": note(data["made"]), "text/html": f"<p>{note(data['made'])}</p>"}))


def note(made: dict[str, Any]) -> str:
    """What a reader is told."""
    return f"Triton has no package for the machine that built this page: its outputs are stored ones, from {describe(made)}."


def store(root: Path, build: Path) -> list[Path]:
    """Store the outputs of every kernel page that the last build executed."""
    written = []
    for path in sorted((build / "executed" / "book").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if not is_kernel_page(notebook):
            continue
        cells = [{"source": cell.source, "outputs": cell.outputs} for cell in notebook.cells if cell.cell_type == "code"]
        target = stored_file(root, path)
        target.parent.mkdir(exist_ok=True)
        made = provenance() | {"command": COMMAND}
        target.write_text(json.dumps({"made": made, "cells": cells}, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        written.append(target)
    return written


def main() -> int:
    """Store; 1 where there is nothing to store."""
    if not triton_here():
        print("kvedu: Triton is not installed here, so there is nothing to store.", file=sys.stderr)
        return 1
    for path in (written := store(ROOT, ROOT / "_build")):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
