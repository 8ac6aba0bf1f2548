"""Lab 4, exercise 4: a shared block is replaced before it is written to."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """A block of one's own, one shared by two, by five; first, middle and last of a table."""
    made = []
    for count, index in ((1, 0), (1, 2), (2, 0), (2, 2), (5, 1), (3, 3)):
        ids = fresh.shuffled(range(12))
        table, free = ids[:4], ids[4:8]
        users = [fresh.integer(1, 3) if block in table else 1 for block in range(12)]
        for block in free:
            users[block] = 0
        users[table[index]] = count
        made.append(Case(f"block {index} of the table has {count} user{'s' * (count > 1)}", (table, index, users, free)))
    return made


def observe(answer: Any, table: list[int], index: int, users: list[int], free: list[int]) -> dict[str, Any]:
    """What is returned and what has changed, whichever free block was taken."""
    old, free_before, users_before = table[index], list(free), list(users)
    rest = [block for i, block in enumerate(table) if i != index]
    result = answer(table, index, users, free)
    new = table[index]
    return {
        "returned": "None" if result is None else "(old, new)" if result == (old, new) else "(new, old)" if result == (new, old) else "something else",
        "the table names": "the old block" if new == old else "a block that was free" if new in free_before else "a block that was in use",
        "count of the old block": users[old],
        "count of the new block": users[new],
        "free blocks": len(free),
        "the new block is still free": new in free,
        "the old block is free": old in free,
        "the rest is as it was": rest == [b for i, b in enumerate(table) if i != index]
        and all(users[b] == users_before[b] for b in range(len(users)) if b not in (old, new)),
    }  # fmt: skip


def replacing(*, always: bool = False, lower: bool = True, count: bool = True, pop: bool = True, put: bool = True,
              give_back: bool = False, never: bool = False, swapped: bool = False) -> Any:  # fmt: skip
    """An answer with one part changed; unchanged it is right."""

    def answer(table: list[int], index: int, users: list[int], free: list[int]) -> tuple[int, int] | None:
        old = table[index]
        if never or (users[old] == 1 and not always):
            return None
        new = free.pop() if pop else free[-1]
        if put:
            table[index] = new
        users[old] -= lower
        if count:
            users[new] = 1
        if give_back:
            free.append(old)
        return (new, old) if swapped else (old, new)

    return answer


EXERCISE = Exercise(
    title="Copy on write",
    read="book/04-paged-attention",
    hint="Four things change when a block is replaced: the free list, the table, and two counts. The old block still has users.",
    checked="blocks with 1, 2, 3 and 5 users, anywhere in a table",
    cases=cases,
    observe=observe,
    right=replacing(),
    may_change_inputs=True,
    mistakes=(
        Mistake(replacing(always=True), "a block is copied though nobody else uses it; the last user may write in place"),
        Mistake(replacing(never=True), "nothing is ever replaced: a write would then show in everybody's text"),
        Mistake(replacing(lower=False), "the old block has one user less now; its count still says otherwise, so it will never be free again"),
        Mistake(replacing(count=False), "the new block has a user now, and its count still says 0"),
        Mistake(replacing(pop=False), "the new block still stands in the free list: the next one who asks will get it too"),
        Mistake(replacing(put=False), "the table still names the old block; put the new one in its place"),
        Mistake(replacing(give_back=True), "the old block is put into the free list while others use it: that is the double free"),
        Mistake(replacing(swapped=True), "the pair is the wrong way round: contents are copied from the old block to the new one"),
    ),
)
