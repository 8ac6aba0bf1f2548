"""The page of measured results: nothing of a row is left out, and each says how it was measured."""

import json
import re
import shutil
from pathlib import Path
from typing import Any, Iterator

import pytest

from kvedu.book.rows import load_rows
from kvedu.book.shown import FEW, tables, text_of, what
from small_book import ROOT, build, contents

STORED = sorted((ROOT / "bench" / "results").glob("*.json"))


def leaves(value: Any) -> Iterator[Any]:
    """All plain values and lists of plain values."""
    if isinstance(value, dict) and len(value) > FEW and all(type(inner) in (int, float) for inner in value.values()):
        yield value  # a column of counts: shown by its largest, or a row of its own
    elif isinstance(value, dict):
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
            alone = value.values() if isinstance(value, dict) else [value]
            assert any(text_of(value) in cell for cell in cells) or all(any(text_of(one) in cell for cell in cells) for one in alone), value
        assert what(row.command, ROOT, path.stem) != row.command, "the program that made it says what it does"


def test_no_two_rows_say_the_same() -> None:
    said = [what(load_rows(path.stem)[-1].command, ROOT, path.stem) for path in STORED]
    assert len(set(said)) == len(said), "a program with two rows says of each what it holds: 1. ``name``: …"


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_names_are_words(path: Path) -> None:
    """No key of a program on the page, and no cell that makes a table endless."""
    for row in load_rows(path.stem):
        for shown in tables(row.values):
            for cell in (shown.title, *shown.head, *(line[0] for line in shown.lines)):
                assert not re.search(r"[a-z]_[a-z]", cell), cell
            assert max(len(cell) for line in shown.lines for cell in line) < 200


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
        (list(range(9)), "9 numbers, 0 to 8, median 4"), ({"a": 1}, "a: 1"), ({c: ord(c) for c in "abcdefghi"}, "9 kinds, most i: 105, h: 104, g: 103"), (["a"] * 9, ", ".join("a" * 9)),
    ],
)  # fmt: skip
def test_a_cell(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_the_page(book: Path) -> None:
    shutil.copy(ROOT / "book" / "measured-results.md", book / "book")
    (book / "bench" / "results").mkdir(parents=True)
    (book / "bench" / "bench_it.py").write_text('"""How fast ``it`` is.\n\n1. ``it``: by the clock, 5 % off.\n\nMore of it."""\n')
    here = {"machine": {"cpu": "Some CPU", "cores": 3}, "date": "2026-01-02", "versions": {"torch": "9.9"}}
    row = {"name": "it", "command": "python bench/bench_it.py --save", "values": {"seconds": 1.2345678}, "commit": "abc+"} | here
    gpu = row | {"machine": row["machine"] | {"gpu": "Some GPU"}, "commit": "def", "values": {"seconds": 0.5}}
    (book / "bench" / "results" / "it.json").write_text(json.dumps([row, gpu]))
    (book / "bench" / "results" / "other.json").write_text(json.dumps([row | {"name": "other", "values": {"n_ms": list(range(3))}}]))
    contents(book, "claims-ledger", "measured-results")
    status, said = build(book)
    assert status == 0, said
    page = re.sub(r"<[^>]*>", "", (book / "_build" / "html" / "book" / "measured-results.html").read_text("utf-8"))
    for words in ("How fast it is. Here: by the clock, 5% off.", "python bench/bench_it.py --save, commit abc+.", "1.235", "n, ms",
                  "commit def, on Some GPU.", "Some CPU (3 cores), 2026\u201101\u201102; torch 9.9"):  # fmt: skip
        assert words in page, words
    assert "More of it" not in page and page.count("Some CPU") == 1 and "`" not in page
