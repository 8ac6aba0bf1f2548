"""Lab 4, exercise 3: a block allocator that hands out blocks on demand, all or nothing."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh

Act = tuple[str, int, int]
"""("open", seq, 0), ("grow", seq, tokens), ("close", seq, 0)."""


def cases(fresh: Fresh) -> list[Case]:
    """Small stories, one that does not fit and goes on, and random lives."""
    made = [
        Case("5 tokens, then 3, then 1, blocks of 4", (8, 4, [("open", 0, 0), ("grow", 0, 5), ("grow", 0, 3), ("grow", 0, 1)])),
        Case("one token at a time, blocks of 1", (5, 1, [("open", 0, 0), *[("grow", 0, 1)] * 4, ("close", 0, 0)])),
        Case("a request that does not fit, then one that does",
             (3, 4, [("open", 0, 0), ("grow", 0, 6), ("open", 1, 0), ("grow", 1, 9), ("grow", 1, 4), ("close", 0, 0), ("grow", 1, 5)])),
        Case("two that end, and one after them", (4, 4, [("open", 0, 0), ("grow", 0, 8), ("open", 1, 0), ("grow", 1, 8), ("close", 0, 0),
             ("close", 1, 0), ("open", 2, 0), ("grow", 2, 16)])),
    ]  # fmt: skip
    for C in (3, 16):
        acts: list[Act] = []
        alive: list[int] = []
        for seq in range(8):
            acts.append(("open", seq, 0))
            alive.append(seq)
            acts += [("grow", fresh.choice(alive), fresh.integer(1, 2 * C)) for _ in range(4)]
            if len(alive) > 2:
                gone = fresh.choice(alive)
                alive.remove(gone)
                acts.append(("close", gone, 0))
        made.append(Case(f"eight sequences that come and go, blocks of {C}", (12, C, acts)))
    return made


def observe(answer: Any, n_blocks: int, C: int, acts: list[Act]) -> list[Any]:
    """After each act: whether it was refused, free blocks, each table's size and length, and whether a block is in two places."""
    pool = answer(n_blocks, C)
    seen = []
    for act, seq, tokens in acts:
        refused = False
        try:
            getattr(pool, act)(*((seq, tokens) if act == "grow" else (seq,)))
        except MemoryError:
            refused = True
        for name in ("free", "tables", "lengths"):
            if not hasattr(pool, name):
                raise Unfit(f"the allocator has no `{name}` any more; leave __init__ and open as they are")
        blocks = [*pool.free, *(block for table in pool.tables.values() for block in table)]
        sizes = {number: (len(table), pool.lengths.get(number)) for number, table in sorted(pool.tables.items())}
        seen.append({
            "refused": refused, "free": len(pool.free), "blocks and tokens of each sequence": sizes,
            "all blocks in one place": len(set(blocks)) == len(blocks) and set(blocks) <= set(range(n_blocks)),
        })  # fmt: skip
    return seen


class Right:
    """The right answer; the mistakes change a part of it."""

    def __init__(self, n_blocks: int, C: int) -> None:
        self.C, self.free = C, list(range(n_blocks))
        self.tables: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}

    def open(self, seq: int) -> None:
        self.tables[seq], self.lengths[seq] = [], 0

    def needed(self, seq: int, tokens: int) -> int:
        """Blocks that are missing."""
        return -(-(self.lengths[seq] + tokens) // self.C) - len(self.tables[seq])

    def grow(self, seq: int, tokens: int) -> None:
        missing = self.needed(seq, tokens)
        if missing > len(self.free):
            raise MemoryError
        self.tables[seq] += [self.free.pop() for _ in range(missing)]
        self.lengths[seq] += tokens

    def close(self, seq: int) -> None:
        self.free += self.tables.pop(seq)
        del self.lengths[seq]


class TakesThenLooks(Right):
    """Notices only when the free list is empty."""

    def grow(self, seq: int, tokens: int) -> None:
        for _ in range(self.needed(seq, tokens)):
            if not self.free:
                raise MemoryError
            self.tables[seq].append(self.free.pop())
        self.lengths[seq] += tokens


class CountsFirst(Right):
    """The length grows even where the blocks cannot be had."""

    def grow(self, seq: int, tokens: int) -> None:
        missing = self.needed(seq, tokens)
        self.lengths[seq] += tokens
        if missing > len(self.free):
            raise MemoryError
        self.tables[seq] += [self.free.pop() for _ in range(missing)]


class ForgetsRoom(Right):
    """Every call begins a new block."""

    def needed(self, seq: int, tokens: int) -> int:
        return -(-tokens // self.C)


class RoundsDown(Right):
    """A block is taken when it is full."""

    def needed(self, seq: int, tokens: int) -> int:
        return (self.lengths[seq] + tokens) // self.C - len(self.tables[seq])


class OneAhead(Right):
    """A block more than is needed where the last one is full."""

    def needed(self, seq: int, tokens: int) -> int:
        return (self.lengths[seq] + tokens) // self.C + 1 - len(self.tables[seq])


class CountsNothing(Right):
    """The length stays 0."""

    def grow(self, seq: int, tokens: int) -> None:
        super().grow(seq, tokens)
        self.lengths[seq] = 0


class SaysNothing(Right):
    """A refusal comes back as if all were well."""

    def grow(self, seq: int, tokens: int) -> None:
        if self.needed(seq, tokens) <= len(self.free):
            super().grow(seq, tokens)


class Leaks(Right):
    """A closed sequence's blocks are lost."""

    def close(self, seq: int) -> None:
        del self.tables[seq], self.lengths[seq]


class KeepsTheTable(Right):
    """The blocks are free again, and the table still names them."""

    def close(self, seq: int) -> None:
        self.free += self.tables[seq]


EXERCISE = Exercise(
    title="A block allocator",
    defines="BlockAllocator",
    read="book/04-paged-attention",
    hint="How many blocks does the new length need, rounded up, and how many has the sequence? Compare what is missing with the free list before you take any.",
    checked="blocks taken, refused and given back over small stories and random lives, for blocks of 1, 3, 4 and 16",
    cases=cases,
    observe=observe,
    right=Right,
    mistakes=(
        Mistake(TakesThenLooks, "where blocks do not suffice, some are taken before it is noticed, and stay taken: decide first, then take"),
        Mistake(CountsFirst, "a refused request still counts its tokens; nothing may change where nothing is given"),
        Mistake(ForgetsRoom, "each call begins a new block; the last one may still have room: count blocks for the whole length"),
        Mistake(RoundsDown, "the last, partly filled block is missing: round up"),
        Mistake(OneAhead, "a sequence that fills its blocks exactly gets one more, before its first token comes"),
        Mistake(CountsNothing, "`lengths` does not grow with the tokens, so the next call counts from nothing"),
        Mistake(SaysNothing, "where blocks do not suffice, `grow` comes back as if all were well: raise MemoryError"),
        Mistake(Leaks, "the blocks of a closed sequence do not come back to the free list"),
        Mistake(KeepsTheTable, "a closed sequence still has its table, so that its blocks are in two places"),
    ),
)  # fmt: skip
