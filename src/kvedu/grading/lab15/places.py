"""Lab 15, exercise 1: which position inside the cache each slot of a ring with sinks has."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Before the ring is full, when it just is, one token on, one round on, long after; with and without sinks."""
    some = [(0, 2, 4), (1, 2, 4), (2, 2, 4), (6, 2, 4), (7, 2, 4), (9, 2, 4), (10, 2, 4), (5, 0, 4), (8, 1, 3), (3, 4, 6)]
    for _ in range(4):
        sinks, window = fresh.integer(0, 5), fresh.integer(2, 9)
        some.append((sinks + window + fresh.integer(1, 40), sinks, window))
    return [Case(f"{seen} tokens seen, {sinks} sinks, window {window}", (seen, sinks, window)) for seen, sinks, window in some]


def right(seen: int, sinks: int, window: int) -> list[int]:
    """Write the tokens one by one, then number what is left."""
    slots: dict[int, int] = {}
    for token in range(seen):
        slots[token if token < sinks else sinks + (token - sinks) % window] = token
    order = sorted(slots.values())
    return [order.index(slots[slot]) for slot in sorted(slots)]


def in_the_text(seen: int, sinks: int, window: int) -> list[int]:
    """Positions in the text."""
    slots: dict[int, int] = {}
    for token in range(seen):
        slots[token if token < sinks else sinks + (token - sinks) % window] = token
    return [slots[slot] for slot in sorted(slots)]


def one_ring(seen: int, sinks: int, window: int) -> list[int]:
    """The sinks are part of the ring."""
    size = sinks + window
    return list(range(seen)) if seen <= size else [(slot - seen) % size for slot in range(size)]


def newest_first(seen: int, sinks: int, window: int) -> list[int]:
    """The slot that was written last is numbered first."""
    if seen <= sinks + window:
        return list(range(seen))
    return [*range(sinks), *(sinks + (i - (seen - 1 - sinks)) % window for i in range(window))]


EXERCISE = Exercise(
    title="Places in a ring",
    read="book/15-sinks-rope-qk-ov",
    hint="Which slot will be written next? It holds the oldest token of the window, so it has place `sinks`. Go on from there, and around.",
    checked="rings that are not full yet, just full, in their first round and long after; with and without sinks",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda seen, sinks, window: list(range(min(seen, sinks + window))), "slots are numbered as they lie; once the ring has gone round, the oldest token of the window lies somewhere in its middle"),
        Mistake(in_the_text, "these are positions in the text, and they grow without end; number what is held 0, 1, 2 … without a gap"),
        Mistake(one_ring, "the sinks go round with the others; the first slots are never written again, and only the window is a ring"),
        Mistake(newest_first, "the slot that was written last is taken for the oldest; it is the one after it"),
        Mistake(lambda seen, sinks, window: right(seen, sinks, window)[sinks:], "the sinks are missing; they have slots 0 … sinks - 1, and those places"),
    ),
)  # fmt: skip
