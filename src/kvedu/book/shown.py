"""Stored rows as tables that a person can read: what the page of measured results shows."""

from __future__ import annotations

import ast
import shlex
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

FEW = 8
"""Numbers of a list that are all shown; of a longer one the range and the median."""


@dataclass(frozen=True)
class Shown:
    """One table: what it is of ("" for the row's own numbers), its head, and a line for each entry."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def tables(values: Mapping[str, Any], title: str = "") -> Iterator[Shown]:
    """The values of a row, nothing left out: plain ones in one table, then one for each group of entries that are alike.

    >>> [t.lines for t in tables({"seconds": 1.25, "by_case": {"a": {"x": 1}, "b": {"x": 2}}})]
    [(('seconds', '1.25'),), (('a', '1'), ('b', '2'))]
    """
    plain, deeper = [], []
    for key, value in values.items():
        if _is_table(value):
            deeper.append((key, value))
        else:
            plain.append((str(key), text_of(value)))
    if alike := _alike({key: value for key, value in deeper if isinstance(value, Mapping)}):
        deeper = [(key, value) for key, value in deeper if key not in alike]
    if plain:
        yield Shown(title, ("", "value"), tuple(plain))
    if alike:
        yield _of_entries(title, alike)
    for key, value in deeper:
        name = f"{title} · {key}" if title else str(key)
        if isinstance(value, Mapping):
            yield from tables(value, name)
        else:
            yield _of_entries(name, {str(n): entry for n, entry in enumerate(value, 1)})


def text_of(value: Any) -> str:
    """One value in a cell: four figures of a number, a short list whole, of a long one the range and the median."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {text_of(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        numbers = [x for x in value if isinstance(x, (int, float)) and not isinstance(x, bool)]
        if len(value) > FEW and len(numbers) == len(value):
            low, middle, high = (text_of(x) for x in (min(value), statistics.median(value), max(value)))
            return f"{len(value)} numbers, {low} to {high}, median {middle}"
        return ", ".join(map(text_of, value))
    return str(value)


def what(command: str, root: Path) -> str:
    """The first sentence of the program that a command runs; the command itself where it is not in ``root``."""
    path = next((root / word for word in shlex.split(command) if word.endswith(".py")), None)
    if path is None or not path.is_file():
        return command
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or command).split("\n\n")[0].replace("\n", " ")


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _alike(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The largest set of two or more entries that have the same keys, none of them a table of its own."""
    by_keys: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for name, entry in groups.items():
        if entry and not any(_is_table(value) for value in entry.values()):
            by_keys.setdefault(tuple(entry), {})[name] = entry
    largest = max(by_keys.values(), key=len, default={})
    return largest if len(largest) > 1 else {}


def _of_entries(title: str, entries: Mapping[str, Mapping[str, Any]]) -> Shown:
    keys = list(dict.fromkeys(key for entry in entries.values() for key in entry))
    lines = tuple((name, *(text_of(entry[key]) if key in entry else "" for key in keys)) for name, entry in entries.items())
    return Shown(title, ("", *keys), lines)
