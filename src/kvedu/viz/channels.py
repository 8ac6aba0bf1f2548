"""Data of the channels figure: real keys and values of a head, and what coding them costs the model."""

from __future__ import annotations

from typing import Any, Sequence

from kvedu.caches.formats import integer

GROUP = 32
"""Numbers that share a scale and a zero point, along the head or along the tokens."""


def data(
    heads: Sequence[dict[str, Any]] = (),
    measured: Sequence[dict[str, Any]] = (),
    full_perplexity: float | None = None,
    predict: dict[str, Any] | None = None,
    **start: Any,
) -> dict[str, Any]:
    """``heads``: {"name", "keys" [T][D], "values" [T][D]}. ``measured``: the model with one side coded and the other exact,
    {"side", "along", "bits", "perplexity"}. T is a multiple of ``GROUP``. ``start`` sets controls. Without heads: made-up ones."""
    given = {
        "figure": "channels",
        "title": "One head's keys and values, coded",
        "group": GROUP,
        "heads": list(heads) or [_made_up()],
        "measured": list(measured),
        "full": full_perplexity,
        "stored_bits": {str(bits): integer(bits, GROUP).sized.bits_per_element for bits in (2, 4, 8)},
        "start": start,
    }
    return given | ({"predict": predict} if predict else {})


def _made_up() -> dict[str, Any]:
    """A head with one large channel in its keys and none in its values, by a formula; named as what it is."""
    keys = [[round(((7 * t + 13 * d) % 17 - 8) / 8 + (9 if d == 5 else 0), 2) for d in range(GROUP)] for t in range(GROUP)]
    values = [[round(((5 * t + 11 * d) % 19 - 9) / 9, 2) for d in range(GROUP)] for t in range(GROUP)]
    return {"name": "made up", "keys": keys, "values": values}
