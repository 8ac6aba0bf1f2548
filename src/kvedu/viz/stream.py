"""Data of a stream through a cache of a fixed size: real losses, what each policy holds, and what a head looks at.

A step reads ``chunk`` tokens. Everything is as it stands when a step ends; attention is that of the
last query of the step in a full cache, so it says what a policy *would* have needed.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from torch import Tensor

SMALLEST = 0.004
"""Attention weights below this are left out of the data."""


def ranges(positions: Sequence[int]) -> list[list[int]]:
    """Ascending positions as ``[from, to)`` pairs.

    >>> ranges([0, 1, 2, 7, 9, 10])
    [[0, 3], [7, 8], [9, 11]]
    """
    found: list[list[int]] = []
    for p in positions:
        if found and found[-1][1] == p:
            found[-1][1] = p + 1
        else:
            found.append([p, p + 1])
    return found


def looks(weights_S: Tensor) -> list[list[float]]:
    """One query's attention as ``[position, weight]``, three decimals, small ones left out."""
    return [[p, round(w, 3)] for p, w in enumerate(weights_S.tolist()) if w >= SMALLEST]


def policy(
    name: str, loss: Sequence[float], budget: int, *, sinks: int | None = None, held: Sequence[Sequence[list[list[int]]]] | None = None
) -> dict[str, Any]:
    """One way to keep ``budget`` tokens: losses (nats) of tokens 1, 2 …, and ``sinks`` first with a window of the rest,
    or what it ``held``: ranges for each head of the figure and each step."""
    what = {"sinks": sinks} if held is None else {"held": held}
    return {"name": name, "budget": budget, "loss": [round(x, 3) for x in loss], **what}


def data(
    tokens: Sequence[str],
    chunk: int,
    full: Sequence[float],
    policies: Sequence[Mapping[str, Any]],
    heads: Sequence[tuple[str, Sequence[list[list[float]]]]],
    *,
    predict: dict[str, Any] | None = None,
    **start: Any,
) -> dict[str, Any]:
    """``tokens`` are the text's, ``full`` the losses with a full cache, ``heads`` a name and what it looks at in each step
    (``looks``); ``start`` sets controls (``policy``, ``head``, ``step``)."""
    found = {
        "figure": "stream",
        "title": "A stream through a cache of a fixed size",
        "tokens": list(tokens),
        "chunk": chunk,
        "full": [round(x, 3) for x in full],
        "policies": list(policies),
        "heads": [{"name": name, "attention": list(attention)} for name, attention in heads],
        "start": start,
    }
    return found | ({"predict": predict} if predict else {})
