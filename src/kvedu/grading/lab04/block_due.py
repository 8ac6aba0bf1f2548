"""Lab 4, exercise 2: whether a decode step must take a new block."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Around the edges of blocks, and blocks of one token."""
    pairs = [(2, 1), (7, 1), (4, 4), (5, 4), (6, 4), (16, 16), (17, 16), (18, 16), (257, 256)]
    C = fresh.integer(5, 40)
    pairs += [(k * C + more, C) for k in (1, fresh.integer(2, 9)) for more in (-1, 0, 1, 2)]
    return [Case(f"{known} known tokens, blocks of {C}", (known, C)) for known, C in pairs]


EXERCISE = Exercise(
    title="Is a new block due?",
    read="book/04-paged-attention",
    hint="Of the known tokens all but the last are cached. The step writes the last one: which index has it?",
    checked="the steps before, at and after the edge of a block, for blocks of 1, 4, 16, 256 and a random size",
    cases=cases,
    right=lambda known, C: (known - 1) % C == 0,
    mistakes=(
        Mistake(lambda known, C: known % C == 0,
                "`known` is taken for the number of cached tokens; it is one more, since the last one is not written yet"),
        Mistake(lambda known, C: known % C == 1,
                "for blocks of one token this is never true: no remainder of a division by 1 is 1, yet every token needs a block"),
        Mistake(lambda known, C: (known + 1) % C == 0,
                "the token that will be sampled *in* this step is counted too; it is written one step later"),
    ),
)  # fmt: skip
