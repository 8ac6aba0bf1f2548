"""A learner's own record of what is done: one small JSON file on their machine, theirs to export or delete."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

from kvedu.grading.find import exercises, find_exercise, lab_title, labs
from kvedu.grading.verdict import Verdict


@dataclass(frozen=True)
class Progress:
    """A table of exercises: name, title, state, number of checks, hints seen."""

    rows: tuple[tuple[str, str, str, int, int], ...]
    file: str

    HEAD = ("exercise", "title", "state", "checks", "hints")

    def __str__(self) -> str:
        table = [self.HEAD, *[tuple(map(str, row)) for row in self.rows]]
        widths = [max(len(row[i]) for row in table) for i in range(len(self.HEAD))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in table]
        done = sum(row[2] == "done" for row in self.rows)
        return "\n".join([*lines, "", f"{done} of {len(self.rows)} done; kept in {self.file}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{text}</th>" for text in self.HEAD)
        body = "".join("<tr>" + "".join(f"<td>{escape(str(x))}</td>" for x in row) + "</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>Kept in {escape(self.file)}</p>"


def progress(*, export: str | Path | None = None, forget: bool = False) -> Progress:
    """A table of all exercises: what is done, what is next, how often it was checked, how many hints were seen.

    ``export`` writes the table to a CSV file, ``forget=True`` deletes the record.
    """
    if forget:
        progress_file().unlink(missing_ok=True)
    record, rows, next_is_marked = _read(), [], False
    for lab in labs():
        for name in exercises(lab):
            entry = record.get(name, {})
            state = "done" if entry.get("done") else "tried" if entry.get("checks") else "to do"
            optional = find_exercise(name).optional
            if state != "done" and not next_is_marked and not optional:
                state, next_is_marked = f"next ({state})", True
            title = f"{lab_title(lab)}: {find_exercise(name).title}" + (" (challenge)" if optional else "")
            rows.append((name, title, state, int(entry.get("checks", 0)), len(entry.get("hints", []))))
    table = Progress(tuple(rows), str(progress_file()))
    if export is not None:
        with open(export, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([Progress.HEAD, *rows])
    return table


def note(verdict: Verdict) -> None:
    """Write a verdict into the record; in silence where the file cannot be written."""
    record = _read()
    entry = record.setdefault(verdict.name, {"checks": 0, "hints": [], "done": None})
    entry["checks"] += 1
    if verdict.hint and verdict.hint not in entry["hints"]:
        entry["hints"].append(verdict.hint)
    if verdict.passed and not entry["done"]:
        entry["done"] = datetime.now().isoformat(timespec="seconds")
    path = progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        os.replace(file.name, path)
    except OSError:
        return


def progress_file() -> Path:
    """Where the record is kept: ``KVEDU_PROGRESS``, else ``~/.local/share/kvedu/progress.json``."""
    if named := os.environ.get("KVEDU_PROGRESS"):
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "kvedu" / "progress.json"


def _read() -> dict[str, dict]:
    """The record; empty where there is none or it is not readable."""
    try:
        record = json.loads(progress_file().read_text("utf-8"))
        return {name: {"checks": int(x["checks"]), "hints": list(x["hints"]), "done": x["done"]} for name, x in record.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
