"""Lab 6, exercise 5, part one: the first round in which a draft's cache is not the text's."""

from __future__ import annotations

from collections.abc import Callable

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

Rounds = list[tuple[list[int], list[int]]]


def cases(fresh: Fresh) -> list[Case]:
    """In step throughout; behind, which is allowed; a token missing in the middle, a rejected one kept, one too many, all of the text."""
    text = fresh.tokens(24, 1000)
    while len(set(text)) < len(text):
        text = fresh.tokens(24, 1000)
    lengths = (4, 7, 11, 15, 20)
    well: Rounds = [(text[:n], text[: n - 1 - (i % 2)]) for i, n in enumerate(lengths)]

    def spoiled(at: int, held: list[int]) -> Rounds:
        return [(ids, held if i == at else kept) for i, (ids, kept) in enumerate(well)]

    return [
        Case("in step, or behind", (well,)),
        Case("nothing held yet", ([(text[:5], []), *well[1:]],)),
        Case("a token is missing in the middle", (spoiled(2, text[:6] + text[7:10]),)),
        Case("it is missing from then on", ([(ids, held[:6] + held[7:] if i > 1 else held) for i, (ids, held) in enumerate(well)],)),
        Case("a rejected token is still held", (spoiled(3, text[:13] + [1001]),)),
        Case("the text's last token is held too", (spoiled(1, text[:7]),)),
        Case("more than the text is held", (spoiled(4, text[:22]),)),
        Case("wrong from round 1 on, then right by chance", (spoiled(1, text[1:6]),)),
        Case("the right tokens in another order", (spoiled(3, [*text[:12], text[13], text[12]]),)),
        Case("wrong in the first round", (spoiled(0, [1002]),)),
        Case("no rounds", ([],)),
    ]


def finder(wrong: Callable[[list[int], list[int]], bool], first: int = 0) -> Callable[[Rounds], int | None]:
    """The first round that is wrong by a criterion."""

    def answer(rounds: Rounds) -> int | None:
        return next((i + first for i, (ids, held) in enumerate(rounds) if wrong(ids, held)), None)

    return answer


def stale(ids: list[int], held: list[int]) -> bool:
    """Not a beginning of the text, or all of it."""
    return held != ids[: len(held)] or len(held) >= len(ids)


EXERCISE = Exercise(
    title="The first stale round",
    read="book/06-speculative-decoding",
    hint="What is held must be a beginning of the text: `held == ids[:len(held)]`. And something must be left to run, or there are no logits.",
    checked="caches in step and behind, with a token missing, a rejected one kept, another order, and with nothing left to run",
    cases=cases,
    right=finder(stale),
    mistakes=(
        Mistake(finder(lambda ids, held: len(held) >= len(ids)), "lengths alone are compared; a cache can have the right length and hold the wrong tokens"),
        Mistake(finder(lambda ids, held: held != ids[: len(held)]), "a cache that holds all of the text is in order here; then no token is left to run, and there are no logits to guess from"),
        Mistake(finder(lambda ids, held: held != ids[:-1]), "a cache that holds less than the text is no fault: what is missing is run in the next round"),
        Mistake(finder(lambda ids, held: not set(held) <= set(ids) or len(held) >= len(ids)), "tokens are compared as a set; their order counts, and so does a gap"),
        Mistake(finder(stale, first=1), "rounds are counted from 0"),
        Mistake(lambda rounds: next((i for i, pair in reversed(list(enumerate(rounds))) if stale(*pair)), None), "the last stale round is returned; the first shows where it began"),
        Mistake(lambda rounds: -1 if finder(stale)(rounds) is None else finder(stale)(rounds), "where all is well, None was wanted"),
    ),
)
