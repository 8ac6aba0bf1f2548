"""Sentences and lines that every machine has, as filler around what is to be found again."""

from __future__ import annotations

import importlib
import inspect
import random
import re
from typing import Callable, Sequence

from kvedu.errors import RequestError
from kvedu.texts import read

Encode = Callable[[str], Sequence[int]]

FROZEN = ("prose", "story")


def sentences(names: Sequence[str] = FROZEN) -> list[str]:
    """The sentences of frozen texts (``kvedu.texts``), in order; titles and other short lines are left out."""
    paragraphs = [p.replace("\n", " ").strip() for name in names for p in read(name).split("\n\n")]
    found = [s for p in paragraphs for s in re.split(r"(?<=[.!?])\s+", p)]
    return [s for s in found if len(s) > 20 and s[-1] in ".!?"]


def source_lines(module: str = "textwrap") -> list[str]:
    """The lines of a module of Python's standard library, blank ones left out. They differ between Python versions."""
    return [line for line in inspect.getsource(importlib.import_module(module)).splitlines() if line.strip()]


def haystack(
    encode: Encode, length: int, needles: Sequence[tuple[float, str]] = (), *, filler: Sequence[str] | None = None, seed: int = 0
) -> tuple[int, ...]:
    """``length`` token ids: sentences of ``filler`` (default: ``sentences()``) in an order drawn from the seed, needles between them.

    A needle ``(depth, text)`` stands before the first sentence that begins at or after ``depth`` of the
    way: 0 at the very beginning, 1 at the end; several at one depth stand in the order given. The last sentence of filler
    is cut to fit, a needle never. Raises ``RequestError`` where the filler is too short or the needles too long.
    """
    if any(not 0 <= depth <= 1 for depth, _ in needles):
        raise RequestError(f"a depth lies between 0 (the beginning) and 1 (the end), not {[depth for depth, _ in needles]}")
    waiting = sorted(((depth, list(encode(f" {text}"))) for depth, text in needles), key=lambda needle: needle[0])
    room = length - sum(len(ids) for _, ids in waiting)
    if room < 0:
        raise RequestError(f"the needles alone take {length - room} tokens; they do not fit in {length}")
    order = list(sentences() if filler is None else filler)
    random.Random(seed).shuffle(order)
    ids: list[int] = []
    used = 0
    for sentence in order:
        while waiting and used >= waiting[0][0] * room and waiting[0][0] < 1:
            ids += waiting.pop(0)[1]
        if used >= room:
            break
        piece = list(encode(f" {sentence}"))[: room - used]
        ids += piece
        used += len(piece)
    if used < room:
        raise RequestError(f"the filler has {used} tokens, and {room} are wanted; give more of it, or a shorter length")
    for _, needle in waiting:
        ids += needle
    return tuple(ids)
