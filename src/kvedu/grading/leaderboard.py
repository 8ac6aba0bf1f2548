"""A board of one's own runs of a challenge: what was tried before, the best first."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kvedu.errors import KveduError
from kvedu.grading.progress import progress_file

MOST = 10
"""Rows shown; all are kept."""


@dataclass(frozen=True)
class Leaderboard:
    """Runs of one challenge, the best first; ``this`` is the place of the run just noted, from 1."""

    name: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    this: int

    def _table(self) -> list[tuple[str, ...]]:
        """The head, then the best runs; this one too where it is not among them. Nobody named a run: no column of names."""
        first = 0 if any(row[0] for row in self.rows) else 1
        named = [(f"{place}{' ← this run' if place == self.this else ''}", *row[first:]) for place, row in enumerate(self.rows, 1)]
        return [("place", *self.head[first:]), *named[:MOST], *(named[self.this - 1 : self.this] if self.this > MOST else [])]

    def __str__(self) -> str:
        table = self._table()
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        names = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
        lines = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in rows]
        return f"<table><thead><tr>{names}</tr></thead><tbody>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</tbody></table>"


def shown(value: float) -> str:
    """A measure as the board shows it: whole numbers in full, others to three significant digits.

    >>> shown(22016.0), shown(0.820513)
    ('22,016', '0.821')
    """
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}"


def leaderboard(name: str, *, label: str = "", highest: bool = False, **measures: float) -> Leaderboard:
    """Note a run of a challenge and give the board of all runs on this machine.

    The first measure decides: the lowest is best, or with ``highest`` the highest; the next ones break ties.
    ``label`` says what was tried. A run that equals an earlier one is not noted twice. Raises ``KveduError``
    without a measure. The file stands beside that of ``kvedu.progress``.
    """
    if not measures:
        raise KveduError("a run needs at least one measure, such as copied=1_234")
    run = {"label": label, "measures": {key: float(value) for key, value in measures.items()}}
    boards = _read()
    runs = [x for x in boards.get(name, []) if x["measures"].keys() == run["measures"].keys() and x != run] + [run]
    _write(boards | {name: runs})
    sign = -1 if highest else 1
    runs.sort(key=lambda x: [sign * value for value in x["measures"].values()])
    rows = tuple((x["label"], *map(shown, x["measures"].values())) for x in runs)
    return Leaderboard(name, ("tried", *(key.replace("_", " ") for key in measures)), rows, runs.index(run) + 1)


def runs_file() -> Path:
    """Where the runs are kept."""
    return progress_file().with_name("runs.json")


def _read() -> dict[str, list[dict]]:
    try:
        boards = json.loads(runs_file().read_text("utf-8"))
        return {
            str(name): [{"label": str(x["label"]), "measures": {str(k): float(v) for k, v in x["measures"].items()}} for x in runs]
            for name, runs in boards.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _write(boards: dict[str, list[dict]]) -> None:
    path = runs_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(boards, indent=1), "utf-8")
        part.replace(path)
    except OSError:
        return
