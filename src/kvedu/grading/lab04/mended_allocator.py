"""Lab 4, exercise 5, part two: an allocator with forks that gives every block back exactly once."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab04.audit import right as audit

Act = tuple[str, int, int]
"""("open", seq, 0), ("grow", seq, tokens), ("fork", seq, new), ("close", seq, 0)."""


def cases(fresh: Fresh) -> list[Case]:
    """A fork that writes and ends before or after its parent, one that never writes, forks of forks, and random lives."""
    begin = [("open", 0, 0), ("grow", 0, 6), ("fork", 0, 1)]
    made = [
        Case("a fork writes and ends first", (12, 4, [*begin, ("grow", 1, 1), ("close", 1, 0), ("open", 2, 0), ("grow", 2, 9), ("close", 0, 0)])),
        Case("a fork writes and ends last", (12, 4, [*begin, ("grow", 1, 1), ("close", 0, 0), ("open", 2, 0), ("grow", 2, 9), ("close", 1, 0)])),
        Case("a fork ends without writing", (12, 4, [*begin, ("close", 1, 0), ("grow", 0, 3), ("close", 0, 0)])),
        Case("the parent writes", (12, 4, [*begin, ("grow", 0, 1), ("close", 0, 0), ("grow", 1, 4), ("close", 1, 0)])),
        Case("a fork of a fork", (12, 4, [*begin, ("grow", 1, 1), ("fork", 1, 2), ("grow", 2, 5), ("close", 1, 0), ("grow", 0, 1), ("close", 2, 0), ("close", 0, 0)])),
    ]  # fmt: skip
    acts, alive, count = [("open", 0, 0), ("grow", 0, 5)], [0], 1
    for _ in range(60):
        kind = fresh.choice(("fork", "grow", "grow", "close", "open"))
        if kind == "close" and len(alive) > 1:
            acts.append(("close", alive.pop(fresh.integer(0, len(alive) - 1)), 0))
        elif kind == "grow":
            acts.append(("grow", fresh.choice(alive), fresh.integer(1, 3)))
        elif len(alive) < 4 and kind in ("fork", "open"):
            acts.append(("fork", fresh.choice(alive), count) if kind == "fork" else ("open", count, 0))
            alive.append(count)
            count += 1
    made.append(Case("sixty random acts", (400, 3, acts)))
    return made


def observe(answer: Any, n_blocks: int, C: int, acts: list[Act]) -> list[Any]:
    """After each act: free blocks, blocks and tokens of each sequence, and how many blocks are in a wrong state."""
    pool, seen = answer(n_blocks, C), []
    for act, seq, other in acts:
        getattr(pool, act)(*((seq, other) if act in ("grow", "fork") else (seq,)))
        sizes = {number: (len(table), pool.lengths.get(number)) for number, table in sorted(pool.tables.items())}
        seen.append({
            "blocks in a wrong state": len(audit(dict(pool.tables), list(pool.users), list(pool.free))),
            "free": len(pool.free), "blocks and tokens of each sequence": sizes,
        })  # fmt: skip
    return seen


class Right:
    """The lab's class with a sound ``close``; the mistakes change that."""

    def __init__(self, n_blocks: int, C: int) -> None:
        self.C, self.free, self.users = C, list(range(n_blocks)), [0] * n_blocks
        self.tables: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}
        self.inherited: dict[int, list[int]] = {}

    def open(self, seq: int) -> None:
        self.tables[seq], self.lengths[seq], self.inherited[seq] = [], 0, []

    def fork(self, seq: int, new: int) -> None:
        self.tables[new], self.lengths[new] = list(self.tables[seq]), self.lengths[seq]
        self.inherited[new] = list(self.tables[seq])
        for block in self.tables[new]:
            self.users[block] += 1

    def take(self) -> int:
        block = self.free.pop()
        self.users[block] = 1
        return block

    def release(self, block: int) -> None:
        self.users[block] = max(0, self.users[block] - 1)
        if self.users[block] == 0 and block not in self.free:
            self.free.append(block)

    def grow(self, seq: int, tokens: int) -> None:
        table, index = self.tables[seq], self.lengths[seq] // self.C
        if index < len(table) and self.users[table[index]] > 1:
            shared, table[index] = table[index], self.take()
            self.release(shared)
        self.lengths[seq] += tokens
        while len(table) * self.C < self.lengths[seq]:
            table.append(self.take())

    def blocks_to_release(self, seq: int) -> list[int]:
        """What ``close`` gives back."""
        return self.tables[seq]

    def close(self, seq: int) -> None:
        for block in self.blocks_to_release(seq):
            self.release(block)
        del self.tables[seq], self.lengths[seq], self.inherited[seq]


class AsItWas(Right):
    """The planted fault."""

    def blocks_to_release(self, seq: int) -> list[int]:
        return self.inherited[seq] + [block for block in self.tables[seq] if block not in self.inherited[seq]]


class OnlyTaken(Right):
    """What was inherited is never given back."""

    def blocks_to_release(self, seq: int) -> list[int]:
        return [block for block in self.tables[seq] if block not in self.inherited[seq]]


class OnlyInherited(Right):
    """What was inherited and is still used is given back, and nothing else."""

    def blocks_to_release(self, seq: int) -> list[int]:
        return [block for block in self.tables[seq] if block in self.inherited[seq]]


class Frees(Right):
    """All its blocks become free, whoever else uses them."""

    def close(self, seq: int) -> None:
        for block in self.tables[seq]:
            self.users[block] = 0
            if block not in self.free:
                self.free.append(block)
        del self.tables[seq], self.lengths[seq], self.inherited[seq]


EXERCISE = Exercise(
    title="Mend the double free",
    defines="MendedAllocator",
    read="book/04-paged-attention",
    hint="`grow` has released a shared block already when it replaced it. Who releases it a second time?",
    checked="every block in a sound state after every act: forks that write, end first, end last, fork again, and sixty random acts",
    cases=cases,
    observe=observe,
    right=Right,
    mistakes=(
        Mistake(AsItWas, "a block that was replaced when the fork wrote is still released at its end: it was released then already"),
        Mistake(OnlyTaken, "what the fork still shares is not released: its counts never fall, and the blocks are lost"),
        Mistake(OnlyInherited, "what the sequence took itself is not released: those blocks are lost"),
        Mistake(Frees, "all its blocks become free, though others still use some of them: release() lowers a count, and frees at 0"),
    ),
)
