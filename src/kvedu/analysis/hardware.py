"""Named machines by their datasheets, to ask what would bound a step there."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from kvedu.analysis.roofline import Hardware
from kvedu.errors import KveduError


@cache
def _all() -> dict[str, Hardware]:
    raw = json.loads(files("kvedu.analysis").joinpath("hardware.json").read_text(encoding="utf-8"))
    return {row["name"]: Hardware(**row, date=raw["transcribed"]) for row in raw["hardware"]}


def hardware_names() -> tuple[str, ...]:
    """Names of all rows, slowest memory first.

    >>> hardware_names()[0], hardware_names()[-1]
    ('laptop-CPU', 'H200-SXM')
    """
    return tuple(sorted(_all(), key=lambda name: _all()[name].bandwidth))


def hardware(name: str) -> Hardware:
    """The datasheet row of this name: dense FLOP/s, decimal bytes, source and date of transcription.

    A datasheet is an upper limit: an H200's large copy reaches some 4.3 of its 4.8 TB/s. For this
    machine's own limits see ``kvedu.machine``. Raises ``KveduError`` with the names there are.

    >>> hardware("T4").bandwidth / 1e9
    320.0
    """
    rows = _all()
    if name not in rows:
        raise KveduError(f"no datasheet row {name!r}; there are {', '.join(hardware_names())}, or build a Hardware")
    return rows[name]
