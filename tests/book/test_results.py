"""The page of measured results: nothing of a row is left out, and each says how it was measured."""

import json
import re
import shutil
from pathlib import Path
from typing import Any, Iterator

import pytest

from kvedu.book.rows import load_rows
from kvedu.book.shown import tables, text_of, what
from small_book import ROOT, build, contents

STORED = sorted((ROOT / "bench" / "results").glob("*.json"))


def leaves(value: Any) -> Iterator[Any]:
    """All plain values and lists of plain values."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_every_value_stands_in_a_cell(path: Path) -> None:
    for row in load_rows(path.stem):
        cells = [cell for shown in tables(row.values) for line in shown.lines for cell in line]
        for value in leaves(row.values):
            assert any(text_of(value) in cell for cell in cells), value
        assert what(row.command, ROOT) != row.command, "the program that made it says what it does"


def test_tables_of_entries_that_are_alike() -> None:
    values = {"n": 3, "a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}, "c": {"z": [{"p": 1}, {"q": 2.5}]}}
    own, alike, deep = tables(values)
    assert own.lines == (("n", "3"),)
    assert (alike.head, alike.lines) == (("", "x", "y"), (("a", "1", "2"), ("b", "3", "4")))
    assert (deep.title, deep.head, deep.lines) == ("c · z", ("", "p", "q"), (("1", "1", ""), ("2", "", "2.5")))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (True, "yes"), (12_345, "12,345"), (0.123456, "0.1235"), (123_456.7, "123,457"), ([1, 2], "1, 2"), ("a", "a"),
        (list(range(9)), "9 numbers, 0 to 8, median 4"), ({"a": 1}, "a: 1"), (["a"] * 9, ", ".join("a" * 9)),
    ],
)  # fmt: skip
def test_a_cell(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_the_page(book: Path) -> None:
    shutil.copy(ROOT / "book" / "measured-results.md", book / "book")
    (book / "bench" / "results").mkdir(parents=True)
    (book / "bench" / "bench_it.py").write_text('"""How fast it is.\n\nMore of it."""\n')
    here = {"machine": {"cpu": "Some CPU", "cores": 3}, "date": "2026-01-02", "versions": {"torch": "9.9"}}
    row = {"name": "it", "command": "python bench/bench_it.py --save", "values": {"seconds": 1.2345678}, "commit": "abc+"} | here
    gpu = row | {"machine": row["machine"] | {"gpu": "Some GPU"}, "commit": "def", "values": {"seconds": 0.5}}
    (book / "bench" / "results" / "it.json").write_text(json.dumps([row, gpu]))
    contents(book, "claims-ledger", "measured-results")
    status, said = build(book)
    assert status == 0, said
    page = re.sub(r"<[^>]*>", "", (book / "_build" / "html" / "book" / "measured-results.html").read_text("utf-8"))
    for words in ("How fast it is.", "python bench/bench_it.py --save", "Some CPU (3 cores), 2026-01-02, commit abc+ with changes",
                  "1.235", "Some GPU, 2026-01-02, commit def;", "torch 9.9"):  # fmt: skip
        assert words in page, words
    assert "More of it" not in page
