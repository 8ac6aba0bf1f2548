"""Lab 4, exercise 1: the places of a sequence's tokens."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

SPANS = ((1, 0, 3), (4, 0, 4), (4, 3, 9), (16, 15, 17), (16, 16, 49), (3, 7, 8), (5, 4, 4))
"""Block size, first token, one past the last."""


def cases(fresh: Fresh) -> list[Case]:
    """Spans inside a block, over its edge, from its edge, and an empty one; tables of scattered blocks."""
    made = []
    for C, start, stop in SPANS:
        table = fresh.shuffled(range(3, 3 + 2 * max(stop, 1)))[: stop // C + 1]
        made.append(Case(f"tokens {start} .. {stop - 1}, blocks of {C}, table {table}", (table, start, stop, C)))
    return made


def slots(table: list[int], start: int, stop: int, C: int) -> list[int]:
    """The right answer."""
    return [table[t // C] * C + t % C for t in range(start, stop)]


EXERCISE = Exercise(
    title="Where a token lies",
    read="book/04-paged-attention",
    hint="With C = 4 and the table [7, 2], token 5 is the second one of block 2, which begins at place 8: it lies at place 9.",
    checked="places of tokens within a block, over its edge, from its edge and of no tokens, for blocks of 1 to 16",
    cases=cases,
    right=slots,
    mistakes=(
        Mistake(lambda table, start, stop, C: [table[t // C] + t % C for t in range(start, stop)],
                "a block's id is taken for its first place; block b begins at place b · C"),
        Mistake(lambda table, start, stop, C: list(range(start, stop)),
                "the table is not used: tokens lie one after the other only where blocks happen to"),
        Mistake(lambda table, start, stop, C: [table[-1] * C + t % C for t in range(start, stop)],
                "all tokens go to the last block; a span may begin in an earlier one"),
        Mistake(lambda table, start, stop, C: slots(table, 0, stop - start, C),
                "the tokens are counted from 0 again; the first of them is token `start`"),
        Mistake(lambda table, start, stop, C: [table[(t - 1) // C] * C + t % C for t in range(start, stop)],
                "the first token of a block goes to the block before: the index is t // C, with t from 0"),
    ),
)  # fmt: skip
