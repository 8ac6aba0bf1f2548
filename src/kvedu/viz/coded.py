"""Data of the coded figure: bytes of a page by format, and whether bytes or instructions bound a kernel that reads it."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from kvedu.analysis.hardware import hardware
from kvedu.analysis.issue import issue_rate
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import weight_bytes
from kvedu.caches.formats import Format, float8, integer

D = 128
FORMATS: Mapping[str, tuple[Format, Format]] = {
    "int8": (integer(8, D), integer(8, D)),
    "int8, groups of 32": (integer(8, 32), integer(8, 32)),
    "e4m3": (float8(), float8()),
    "int4": (integer(4, D), integer(4, D)),
    "KIVI, 4 bits": (integer(4, 16, "tokens"), integer(4, 32)),
    "int2": (integer(2, D), integer(2, D)),
}
CHIPS = {"T4": 75, "A100-80GB-SXM": 80, "H100-SXM": 90, "H200-SXM": 90}
"""Machines of the datasheets, and the compute capability that a kernel is compiled for."""


def side(format: Format) -> dict[str, Any]:
    """What the script reads of keys' or values' format."""
    sized = format.sized
    return {"bits": sized.bits, "group": sized.group, "along": sized.along, "extra": sized.scale_bytes + sized.zero_bytes, "step": format.step}


def data(rows: Sequence[Mapping[str, Any]] = (), predict: dict[str, Any] | None = None, **start: Any) -> dict[str, Any]:
    """``rows`` are those of the stored measurement "instructions": {"capability", "format", "per_element"}; without them bytes alone bound.

    ``start`` sets controls: chip, format, context, batch, residual, page.
    """
    config = known_model("Llama-3-8B").config
    given = {
        "figure": "coded",
        "title": "A quantized cache: what is stored, and what bounds its reading",
        "L": config.L,
        "K": config.K,
        "D": D,
        "weights": weight_bytes(config, 2),
        "formats": [{"name": "16 bits", "sides": None}] + [{"name": name, "sides": [side(f) for f in pair]} for name, pair in FORMATS.items()],
        "chips": [
            {
                "name": name,
                "bandwidth": hardware(name).bandwidth,
                "issue": issue_rate(hardware(name), capability),
                "per_element": {row["format"]: row["per_element"] for row in rows if row["capability"] == capability},
            }
            for name, capability in CHIPS.items()
        ],
        "start": start,
    }
    return given | ({"predict": predict} if predict else {})
