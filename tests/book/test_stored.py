"""Kernel pages where there is no Triton: stored outputs, and a line that says so; pages and what is stored agree."""

import json
from pathlib import Path

import book_stored
import nbformat
import pytest
from book_execute import _run, toc_pages
from book_stored import StoredError, fill, is_kernel_page, stored_file
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from small_book import HEADER

ROOT = Path(__file__).resolve().parents[2]


def page(folder: Path, *cells: str) -> Path:
    path = folder / "book" / "16-x.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + "# 16 · X\n\n" + "\n".join(f"```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells))
    return path


def read(path: Path) -> nbformat.NotebookNode:
    return read_myst_markdown_notebook(path.read_text("utf-8"), add_source_map=True, path=path)


def kernel_pages() -> list[Path]:
    found = [path for path in toc_pages(ROOT) if path.suffix == ".md" and is_myst_markdown_notebook(path.read_text("utf-8"))]
    return [path for path in found if is_kernel_page(read(path))]


@pytest.mark.parametrize("path", kernel_pages(), ids=lambda path: path.stem)
def test_what_is_stored_is_what_the_page_computes(path: Path) -> None:
    fill(read(path), stored_file(ROOT, path))


def test_a_page_is_shown_from_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C044: without Triton a kernel page shows its stored outputs and says where they come from."""
    path = page(tmp_path, "use_interpreter()  # not defined: nothing is executed here", "1 + 1")
    executed = read(path)
    executed.cells[-1].outputs = [nbformat.v4.new_output("stream", text="forty-two")]
    (tmp_path / "_build" / "executed" / "book").mkdir(parents=True)
    nbformat.write(executed, tmp_path / "_build" / "executed" / "book" / "16-x.ipynb")
    assert book_stored.store(tmp_path, tmp_path / "_build") == [stored_file(tmp_path, path)]
    monkeypatch.setattr("book_execute.triton_here", lambda: False)
    notebook = read(path)
    assert _run(notebook, tmp_path, path, 60) is None
    first, last = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert "its outputs are stored ones" in json.dumps(first.outputs) and last.outputs[0]["text"] == "forty-two"


def test_an_older_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = page(tmp_path, "use_interpreter()")
    monkeypatch.setattr("book_execute.triton_here", lambda: False)
    failure = _run(read(path), tmp_path, path, 60)
    assert failure is not None and "is not stored" in failure.why
    target = stored_file(tmp_path, path)
    target.parent.mkdir()
    target.write_text(json.dumps({"made": {}, "cells": [{"source": "use_interpreter() ", "outputs": []}]}))
    with pytest.raises(StoredError, match="older than the page"):
        fill(read(path), target)
