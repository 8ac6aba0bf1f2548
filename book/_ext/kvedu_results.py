"""The ``measured-results`` directive: every stored row with what it measures, its command, where it ran, and its numbers."""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from kvedu.book.provenance import describe
from kvedu.book.rows import Row, load_rows
from kvedu.book.shown import Shown, tables, what

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "bench" / "results"


class ResultsDirective(SphinxDirective):
    """A section for each file of rows; the numbers are folded."""

    def run(self) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        for path in sorted(ROWS.glob("*.json")):
            self.env.note_dependency(str(path))
            section = nodes.section(ids=[f"row-{path.stem}"], names=[path.stem])
            section += nodes.title("", _title(path.stem))
            for row in reversed(load_rows(path.stem)):
                section += _row(row)
            sections.append(section)
        return sections


def _title(name: str) -> str:
    words = [word.upper() if word in ("gqa", "mqa") else word for word in name.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _row(row: Row) -> list[nodes.Node]:
    about = nodes.paragraph("", what(row.command, ROOT))
    how = nodes.paragraph()
    how += nodes.literal("", row.command)
    how += nodes.Text(f" on {describe(row.source)}")
    if row.commit.endswith("+"):
        how += nodes.Text(" with changes that were not committed yet")
    how += nodes.Text("; " + ", ".join(f"{name} {version}" for name, version in row.versions.items()) + ".")
    folded = nodes.container(classes=["toggle", "kv-row"])
    for shown in tables(row.values):
        if shown.title:
            folded += nodes.paragraph("", "", nodes.strong("", shown.title))
        folded += _table(shown)
    return [about, how, folded]


def _table(shown: Shown) -> nodes.table:
    table = nodes.table(classes=["kv-numbers"])
    group = nodes.tgroup(cols=len(shown.head))
    group += [nodes.colspec(colwidth=1) for _ in shown.head]
    head, body = nodes.thead(), nodes.tbody()
    head += _line(shown.head)
    body += [_line(line) for line in shown.lines]
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
