"""Stored rows as tables that a person can read: what the page of measured results shows."""

from __future__ import annotations

import ast
import re
import shlex
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

FEW = 8
"""Numbers of a list that are all shown; of a longer one the range and the median, of a longer mapping the largest."""
LARGEST = 3
UNITS = {
    "_tok_per_s": ", tok/s", "_gb_per_s": ", GB/s", "_gflop_per_s": ", GFLOP/s", "_per_s": " per s", "_ms": ", ms", "_us": ", µs", "_s": ", s",
    "_gib": ", GiB", "_mib": ", MiB", "_nats": ", nats",
}  # fmt: skip
"""How a key's last letters name a unit, and how a reader writes it."""
SHORT = {"kl": "KL", "kv": "KV", "gqa": "GQA", "mqa": "MQA", "mha": "MHA", "mtp": "MTP", "cpu": "CPU", "ttft": "TTFT", "tpot": "TPOT", "sha256": "SHA-256", "pid": "PID"}


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
            plain.append((label(key), text_of(value)))
    if alike := _alike({key: value for key, value in deeper if isinstance(value, Mapping)}):
        deeper = [(key, value) for key, value in deeper if key not in alike]
    if plain:
        yield Shown(title, ("", "value"), tuple(plain))
    if alike:
        yield _of_entries(title, alike)
    for key, value in deeper:
        name = f"{title} · {label(key)}" if title else label(key)
        if isinstance(value, Mapping) and (turned := _turned(value)):
            yield from tables(turned[0], name)
            for inner, entries in turned[1].items():
                yield _of_entries(f"{name} · {label(inner)}", entries)
        elif isinstance(value, Mapping):
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
        counts = {key: n for key, n in value.items() if isinstance(n, (int, float)) and not isinstance(n, bool)}
        if len(value) > FEW and len(counts) == len(value):
            largest = sorted(counts, key=lambda key: -counts[key])[:LARGEST]
            return f"{len(value)} kinds, most " + ", ".join(f"{key}: {text_of(value[key])}" for key in largest)
        return ", ".join(f"{label(key)}: {text_of(inner)}" for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        numbers = [x for x in value if isinstance(x, (int, float)) and not isinstance(x, bool)]
        if len(value) > FEW and len(numbers) == len(value):
            low, middle, high = (text_of(x) for x in (min(value), statistics.median(value), max(value)))
            return f"{len(value)} numbers, {low} to {high}, median {middle}"
        return ", ".join(map(text_of, value))
    return str(value)


def label(key: object) -> str:
    """A key as a reader writes it: words for underscores, a unit apart.

    >>> label("decode_tok_per_s"), label("perplexity_by_text"), label("kl"), label("h2o, 50 %")
    ('decode, tok/s', 'perplexity by text', 'KL', 'h2o, 50%')
    """
    text = str(key)
    if not re.fullmatch(r"[a-z0-9_]+", text):
        return re.sub(r"(?<=[a-z])_(?=[a-z])", " ", re.sub(r"(?<=\d) %", "%", text))
    unit = next((end for end in UNITS if text.endswith(end) and text != end), "")
    words = text.removesuffix(unit).split("_") if unit else text.split("_")
    return " ".join(SHORT.get(word, word) for word in words if word) + UNITS.get(unit, "")


def what(command: str, root: Path, name: str = "") -> str:
    """The first sentence of the program that a command runs; the command itself where it is not in ``root``.

    A program that stores several rows says of each what it holds, in a numbered line that begins with its name; then that follows.
    """
    path = next((root / word for word in shlex.split(command) if word.endswith(".py")), None)
    if path is None or not path.is_file():
        return command
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or command
    said = told.split("\n\n")[0].replace("\n", " ")
    own = re.search(rf"^\d+\. ``{re.escape(name)}``: (.+?\.)(?=\s|$)(?! [a-z])", told, re.MULTILINE | re.DOTALL) if name else None
    whole = said if own is None else f"{said} Here: {' '.join(own[1].split())}"
    return re.sub(r"(?<=\d) %", "%", whole)


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _turned(groups: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Mapping[str, Any]]]] | None:
    """Entries that are alike and hold tables of their own, turned: what is plain in each, and for each inner table its entries.

    None where they are not alike, or an inner table is not a plain mapping.
    """
    entries = [entry for entry in groups.values() if isinstance(entry, Mapping)]
    if len(entries) < 2 or len(entries) < len(groups) or len({tuple(entry) for entry in entries}) > 1:
        return None
    inner = [key for key, value in entries[0].items() if _is_table(value)]
    if not inner or not all(isinstance(entry[key], Mapping) and not any(map(_is_table, entry[key].values())) for entry in entries for key in inner):
        return None
    plain = {name: {key: value for key, value in entry.items() if key not in inner} for name, entry in groups.items()}
    return plain, {key: {name: entry[key] for name, entry in groups.items()} for key in inner}


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
    lines = tuple((label(name), *(text_of(entry[key]) if key in entry else "" for key in keys)) for name, entry in entries.items())
    return Shown(title, ("", *map(label, keys)), lines)
