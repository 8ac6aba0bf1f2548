"""Lab 5, exercise 4, part two: a page that is taken again is found no more under its old key."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab05 import _pool as pools
from kvedu.grading.lab05.stale_keys import right as stale_keys

C = 4
Act = tuple[str, list[int]]


def cases(fresh: Fresh) -> list[Case]:
    """Prompts one after another on a pool that is too small for all; one that is a whole number of pages; two at a time."""
    a, b, d = (fresh.tokens(11, 1000) for _ in range(3))
    whole = fresh.tokens(8, 1000)
    stems = [fresh.tokens(8, 1000) for _ in range(3)]
    life = [("alone", fresh.choice(stems) + fresh.tokens(fresh.integer(0, 4), 1000)) for _ in range(25)]
    return [
        Case("roomy: A, B, A", (12, [("alone", a), ("alone", b), ("alone", a)])),
        Case("tight: A, B, A", (4, [("alone", a), ("alone", b), ("alone", a)])),
        Case("tight: A, B, D, A, B", (5, [("alone", x) for x in (a, b, d, a, b)])),
        Case("whole pages, three times, then others", (4, [("alone", x) for x in (whole, whole, b[:3], whole + [1], d[:3], whole + [2])])),
        Case("two at a time", (9, [("together", a), ("together", a), ("end", []), ("alone", b), ("alone", d), ("alone", a)])),
        Case("a long life", (6, life)),
    ]


def observe(answer: Any, n_blocks: int, acts: list[Act]) -> list[Any]:
    """After each act: tokens reused, pages that hold other tokens than the prompt's, keys that lie, pages that nobody uses."""
    pool, open_tables, seen = answer(n_blocks, C), [], []
    for act, ids in acts:
        reused = wrong = 0
        if act == "end":
            for table in open_tables:
                pool.leave(table)
            open_tables = []
        else:
            table, reused = pool.admit(list(ids))
            if not all(isinstance(block, int) for block in table):
                raise Unfit("take() returns the number of the block that it took")
            wrong = sum(pool.tokens_of.get(block) != ids[: (i + 1) * C] for i, block in enumerate(table))
            if act == "together":
                open_tables.append(table)
            else:
                pool.leave(table)
        lies = len(stale_keys(dict(pool.block_of), dict(pool.tokens_of), pool.key))
        seen.append({"tokens reused": reused, "pages with other tokens": wrong, "keys that lie": lies, "free": len(pool.free)})
    return seen


EXERCISE = Exercise(
    title="Mend the pool",
    read="book/05-prefix-caching",
    hint="Which key named the block so far? `tokens_of[block]` knows what it held. And does that key still name this block?",
    checked="tokens reused, what each page holds and every key, after each act of six histories: roomy and tight, one at a time and two, prompts of whole pages",
    cases=cases,
    observe=observe,
    right=pools.Right,
    defines="MendedPool",
    mistakes=(
        Mistake(pools.AsItWas, "the block is taken, and its old key still names it: the next one who asks for those tokens gets the new ones"),
        Mistake(pools.ForgetsTheTwin, "a key is forgotten though another block holds its tokens by now and the key names that one; forget it only if it names the block that is taken"),
        Mistake(pools.ForgetsAll, "all keys are forgotten, so nothing is found again; forget the one that named this block"),
        Mistake(pools.TakesTheNewest, "the block that was given back last is taken; it is the most likely to be wanted again. Take the first of `free`"),
    ),
)
