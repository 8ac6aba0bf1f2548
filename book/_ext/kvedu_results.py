"""The ``measured-results`` directive: every stored row with what it measures, its command, where it ran, and its numbers."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from kvedu.book.provenance import common_parts, other_parts
from kvedu.book.rows import Row, load_rows
from kvedu.book.shown import tables, what

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "bench" / "results"


LONG = 40
"""Lines of a table that are shown at once; the others are folded once more."""
CODE = re.compile(r"`{1,2}([^`]+)`{1,2}")


class ResultsDirective(SphinxDirective):
    """Where most rows were measured, then a section for each file of rows; the numbers are folded."""

    def run(self) -> list[nodes.Node]:
        files = sorted(ROWS.glob("*.json"))
        rows = {path: load_rows(path.stem) for path in files}
        common = common_parts((row.source for found in rows.values() for row in found), "place", "date", "versions")
        sections: list[nodes.Node] = [nodes.paragraph("", origin(common))] if common else []
        for path in files:
            self.env.note_dependency(str(path))
            section = nodes.section(ids=[f"row-{path.stem}"], names=[path.stem])
            section += nodes.title("", _title(path.stem))
            for row in reversed(rows[path]):
                section += _row(row, common)
            sections.append(section)
        return sections


def origin(common: dict[str, str]) -> str:
    """Place, date and versions that most rows share, said once."""
    return (
        f"Where a row names no other: {common['place']}, {common['date']}; {common['versions']}. "
        "A + behind a commit stands for changes that were not committed yet."
    )


def _title(name: str) -> str:
    words = [word.upper() if word in ("gqa", "mqa") else word for word in name.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _row(row: Row, common: dict[str, str]) -> list[nodes.Node]:
    about = nodes.paragraph("", "", *marked(what(row.command, ROOT, row.name)))
    apart = other_parts(row.source, common)
    how = nodes.paragraph()
    how += nodes.literal("", row.command)
    how += nodes.Text(f", commit {row.commit}" + (f", on {apart}" if apart else "") + ".")
    folded = nodes.container(classes=["toggle", "kv-row"])
    for shown in tables(row.values):
        if shown.title:
            folded += nodes.paragraph("", "", nodes.strong("", shown.title))
        folded += _table(shown.head, shown.lines[:LONG])
        if more := shown.lines[LONG:]:
            rest = nodes.container(classes=["toggle", "kv-row"])
            rest += _table(shown.head, more)
            folded += [nodes.paragraph("", f"{len(more)} more lines:"), rest]
    return [about, how, folded]


def marked(text: str) -> list[nodes.Node]:
    """A sentence of a docstring, with code where it has backquotes."""
    return [nodes.literal("", part) if i % 2 else nodes.Text(part) for i, part in enumerate(CODE.split(text)) if part]


def _table(heads: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> nodes.table:
    table = nodes.table(classes=["kv-numbers"])
    group = nodes.tgroup(cols=len(heads))
    group += [nodes.colspec(colwidth=1) for _ in heads]
    head, body = nodes.thead(), nodes.tbody()
    head += _line(heads)
    body += [_line(line) for line in lines]
    group += [head, body]
    table += group
    return table


def _line(cells: tuple[str, ...]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry = nodes.entry()
        entry += nodes.paragraph("", cell)
        row += entry
    return row


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("measured-results", ResultsDirective)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
