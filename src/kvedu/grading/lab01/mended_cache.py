"""Lab 1, exercise 3: how a buffer of whole chunks grows without losing a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab01.first_wrong_length import TINY

CHUNK = 256


def cases(fresh: Fresh) -> list[Case]:
    """Rows held and rows wanted: the last that fits, the first that does not, more than a chunk at once."""
    sizes = [(0, 1), (0, 256), (0, 257), (256, 256), (256, 257), (512, 512), (512, 513), (256, 600), (0, 768)]
    sizes += [(256 * fresh.integer(1, 3), fresh.integer(800, 1500)) for _ in range(2)]
    return [Case(f"{held} rows held, {wanted} wanted", (fresh.normal(held, TINY.K, TINY.D), wanted)) for held, wanted in sizes]


def observe(answer: Any, old: Tensor, wanted: int) -> Any:
    """Rows of the new buffer, its front (as many rows as the old one has), and whether it is the old one itself."""
    new = answer(TINY).longer(old, wanted)
    if not isinstance(new, Tensor):
        raise Unfit(f"longer() returns the buffer, a tensor; {type(new).__name__} came")
    return len(new), new[: len(old)], new is old


def mended(rows: Callable[[int, int], int], kept: Callable[[int, int], int] = lambda wanted, held: held, *, copies: bool = False) -> Any:
    """A class whose buffers get ``rows(wanted, held)`` rows, the first ``kept(wanted, held)`` from the old one."""

    class Answer:
        def __init__(self, config: object) -> None:
            pass

        def longer(self, old: Tensor, wanted: int) -> Tensor:
            if wanted <= len(old):
                return old.clone() if copies else old
            front = old[: kept(wanted, len(old))]
            return torch.cat((front, old.new_zeros(max(0, rows(wanted, len(old)) - len(front)), *old.shape[1:])))

    return Answer


def whole(wanted: int, held: int = 0) -> int:
    """As many rows as whole chunks have that hold what is wanted."""
    return -(-wanted // CHUNK) * CHUNK


EXERCISE = Exercise(
    title="A cache that grows",
    defines="MendedCache",
    read="book/01-what-is-the-kv-cache",
    hint="Print len(old) and len(front) when the buffer grows from 256 rows to 512. Which rows of old arrive?",
    checked="longer() keeps every row and makes whole chunks, at the edges of chunks and for several chunks at once",
    cases=cases,
    observe=observe,
    right=mended(whole),
    parts=("rows of the new buffer", "its front", "whether it is the old buffer itself"),
    mistakes=(
        Mistake(mended(whole, lambda wanted, held: wanted - CHUNK), "wanted - chunk old rows are kept; that is all of them only by luck"),
        Mistake(mended(whole, lambda wanted, held: max(held - 1, 0)), "the last row of the old buffer is lost"),
        Mistake(mended(whole, lambda wanted, held: 0), "the old rows are lost: the new buffer is empty"),
        Mistake(mended(lambda wanted, held: held + CHUNK), "the buffer grows by one chunk; a long prompt may need several at once"),
        Mistake(mended(lambda wanted, held: wanted), "the buffer has exactly the rows wanted; whole chunks were asked for"),
        Mistake(mended(lambda wanted, held: (wanted // CHUNK + 1) * CHUNK), "a chunk is added where the rows wanted fill whole chunks"),
        Mistake(mended(whole, copies=True), "where the rows fit, the buffer itself is wanted, not a copy"),
    ),
)
