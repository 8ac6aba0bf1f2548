"""Lab 4, exercise 5, part one: which blocks of a pool are in a wrong state."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

N = 12


def pool(fresh: Fresh) -> tuple[dict[str, list[int]], list[int], list[int]]:
    """Three sequences, the third sharing the first two blocks of the first; five blocks are free."""
    ids = fresh.shuffled(range(N))
    tables = {"a": ids[:3], "b": ids[3:5], "c": [*ids[:2], *ids[5:7]]}
    users = [sum(table.count(block) for table in tables.values()) for block in range(N)]
    return tables, users, ids[7:]


def cases(fresh: Fresh) -> list[Case]:
    """A sound pool, and one for each way in which a block can be wrong."""
    made = []

    def case(name: str, spoil: Any) -> None:
        tables, users, free = pool(fresh)
        spoil(tables, users, free)
        made.append(Case(name, (tables, users, free)))

    case("nothing is wrong", lambda tables, users, free: None)
    case("a block in use is free too", lambda tables, users, free: free.append(tables["b"][0]))
    case("a block is free twice", lambda tables, users, free: free.insert(0, free[-1]))
    case("a block is lost: free nowhere, used by nobody", lambda tables, users, free: free.pop())
    case("a count is too high", lambda tables, users, free: users.__setitem__(tables["b"][1], 2))
    case("a shared block's count is too low", lambda tables, users, free: users.__setitem__(tables["a"][0], 1))
    case("a free block has a count", lambda tables, users, free: users.__setitem__(free[1], 1))
    case("two tables name a block that counts one user", lambda tables, users, free: tables["b"].append(tables["a"][2]))

    def freed_while_used(tables: dict[str, list[int]], users: list[int], free: list[int]) -> None:
        users[tables["a"][2]] = 0
        free.append(tables["a"][2])
        del tables["c"]

    case("one that was freed while in use, and a sequence that left without a word", freed_while_used)
    return made


def right(tables: dict[str, list[int]], users: list[int], free: list[int]) -> list[int]:
    """The right answer."""
    named = [sum(table.count(block) for table in tables.values()) for block in range(len(users))]
    return [
        block
        for block, n in enumerate(named)
        if n != users[block] or free.count(block) != (n == 0)
    ]  # fmt: skip


def only(look: Any) -> Any:
    """An audit that looks at one thing: ``look(block, named, count, times free)`` is True for a wrong block."""

    def answer(tables: dict[str, list[int]], users: list[int], free: list[int]) -> list[int]:
        named = [sum(table.count(block) for table in tables.values()) for block in range(len(users))]
        return [b for b in range(len(users)) if look(b, named[b], users[b], free.count(b))]

    return answer


EXERCISE = Exercise(
    title="Audit a pool",
    read="book/04-paged-attention",
    hint="Go through all ids, 0 to len(users) − 1. For each: in how many tables, what count, how often in `free`?",
    checked="blocks free and in use, free twice, lost, counted too high or too low, and a sound pool",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(only(lambda b, named, count, free: free + named > 0 and (named != count or free != (named == 0))),
                "a block that is nowhere, in no table and not free, is not seen: it is lost, and that is wrong too"),
        Mistake(only(lambda b, named, count, free: named != count or (free > 0) != (named == 0)),
                "a block that stands in the free list twice is not seen: two sequences will get it"),
        Mistake(only(lambda b, named, count, free: free != (named == 0)),
                "the counts are not compared with the tables"),
        Mistake(only(lambda b, named, count, free: named != count),
                "the free list is not looked at"),
        Mistake(only(lambda b, named, count, free: named > 1 or named != count or free != (named == 0)),
                "a shared block is called wrong; it is right if its count says how many tables name it"),
        Mistake(only(lambda b, named, count, free: free != (count == 0)),
                "the tables are not looked at: counts and free list can agree with each other and both be wrong"),
    ),
)  # fmt: skip
