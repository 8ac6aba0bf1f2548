"""Stored measurements: ``bench/results/NAME.json``, a list of rows that say where and how they were measured."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvedu.book.provenance import describe, provenance
from kvedu.errors import KveduError

FIELDS = ("name", "command", "values", "machine", "date", "versions", "commit")


@dataclass(frozen=True)
class Row:
    """One stored measurement: its values, the command that makes them, and where it ran."""

    name: str
    command: str
    values: dict[str, Any]
    machine: dict[str, Any]
    date: str
    versions: dict[str, str]
    commit: str

    @property
    def source(self) -> dict[str, Any]:
        """Machine, date, versions, commit and command, as a verdict keeps them."""
        return {key: value for key, value in asdict(self).items() if key not in ("name", "values")}

    def cite(self) -> str:
        """One line for a page: machine, date, commit and command."""
        return f"{describe(self.source)}, by {self.command}"

    def __getitem__(self, key: str) -> Any:
        if key not in self.values:
            raise KveduError(f"row {self.name!r} has no value {key!r}; it has {', '.join(self.values)}")
        return self.values[key]


def rows_folder() -> Path:
    """The folder of stored rows: ``KVEDU_ROWS``, else ``bench/results`` here or in a folder above.

    Raises ``KveduError`` where there is none.
    """
    if given := os.environ.get("KVEDU_ROWS"):
        folder = Path(given)
        if not folder.is_dir():
            raise KveduError(f"KVEDU_ROWS names {given}, which is not a folder")
        return folder
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "bench" / "results").is_dir():
            return folder / "bench" / "results"
    raise KveduError(f"no bench/results in {here} or above it; work inside the repository or set KVEDU_ROWS")


def load_rows(name: str) -> list[Row]:
    """All rows of ``NAME.json``, oldest first.

    Raises ``KveduError``: no such file (the stored names are listed), not a list of rows, or a field that
    is missing or empty.
    """
    path = rows_folder() / f"{name}.json"
    if not path.is_file():
        stored = ", ".join(sorted(p.stem for p in path.parent.glob("*.json"))) or "none"
        raise KveduError(f"no stored rows {name!r} in {path.parent}; stored: {stored}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise KveduError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, list) or not found:
        raise KveduError(f"{path} must hold a list of rows, at least one")
    return sorted((_checked(path, row) for row in found), key=lambda row: row.date)


def load_row(name: str) -> Row:
    """The newest row of ``NAME.json``; errors as ``load_rows``."""
    return load_rows(name)[-1]


def save_row(name: str, values: dict[str, Any], *, command: str, folder: Path | None = None) -> Path:
    """Store a measurement made now; it takes the place of an older one from the same machine.

    ``values`` are plain JSON values whose keys name their units (``decode_tok_per_s``). Returns the file.
    """
    folder = folder or rows_folder()
    path = folder / f"{name}.json"
    row = _checked(path, {"name": name, "command": command, "values": values} | provenance())
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    kept = [old for old in kept if old.get("machine") != row.machine]
    path.write_text(json.dumps([*kept, asdict(row)], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _checked(path: Path, row: Any) -> Row:
    missing = [field for field in FIELDS if not (isinstance(row, dict) and row.get(field))]
    if missing:
        raise KveduError(f"a row of {path} lacks {', '.join(missing)}; every row has {', '.join(FIELDS)}")
    return Row(**{field: row[field] for field in FIELDS})
