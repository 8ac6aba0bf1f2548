"""Lab 5, exercise 1: a key for each full page that stands for the page and all before it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh

Request = tuple[list[int], Hashable]


def cases(fresh: Fresh) -> list[Case]:
    """Prompts that begin alike, end alike, repeat a page, are short, or come from different tenants."""
    C = fresh.integer(3, 5)
    a, b, c = (sorted(fresh.shuffled(range(1000))[:C]) for _ in range(3))
    d = fresh.tokens(C - 1, 1000)
    return [
        Case("two prompts that begin alike", (C, [(a + b + d, None), (a + c + d, None)])),
        Case("the same page after two others", (C, [(a + c, None), (b + c, None)])),
        Case("the same two pages after two others", (C, [(a + c + b, None), (b + c + b, None)])),
        Case("the same pages in another order", (C, [(a + b, None), (b + a, None)])),
        Case("the same tokens in another order within a page", (C, [(a + b, None), (a[::-1] + b, None), (a + b[1:] + b[:1], None)])),
        Case("one page three times over", (C, [(a + a + a, None)])),
        Case("nothing, one token too few, one page, one token more", (C, [([], None), (a[:-1], None), (a, None), (a + b[:1], None)])),
        Case("the same prompt from two tenants, twice", (C, [(a + b, "x"), (a + b, "y"), (a + b, "x"), (a + b, None)])),
        Case("pages of one token", (1, [([7, 8, 7, 9], None), ([7, 8, 8], None), ([8, 7], None)])),
    ]


def observe(answer: Any, C: int, requests: list[Request]) -> list[list[int]]:
    """Which keys are equal: each key by the number of the first key that equals it, over all prompts."""
    numbers: dict[Any, int] = {}
    seen = []
    for ids, salt in requests:
        keys = answer(ids, C, salt)
        if not isinstance(keys, list | tuple):
            raise Unfit(f"a list of keys was wanted, one for each full page; {type(keys).__name__} came")
        try:
            seen.append([numbers.setdefault(key, len(numbers)) for key in keys])
        except TypeError:
            raise Unfit("a key is looked up in a dictionary, so it has to be hashable: a number, a text, bytes or a tuple") from None
    return seen


def pages(ids: list[int], C: int) -> list[tuple[int, ...]]:
    """Full pages."""
    return [tuple(ids[i : i + C]) for i in range(0, len(ids) - C + 1, C)]


def right(ids: list[int], C: int, salt: Hashable) -> list[Any]:
    """The right answer, without any hash: the salt and the whole prefix."""
    return [(salt, tuple(ids[: end + C])) for end in range(0, len(ids) - C + 1, C)]


def with_rest(ids: list[int], C: int, salt: Hashable) -> list[Any]:
    """Counts the last, partly filled page."""
    return [(salt, tuple(ids[: end + C])) for end in range(0, len(ids), C)]


EXERCISE = Exercise(
    title="The chained hash",
    read="book/05-prefix-caching",
    hint="Begin with a key made of the salt. For each full page, the new key is made of the key before it and the page's tokens.",
    checked="which keys are equal and which are not: common beginnings, equal pages with other histories, repeated pages, short prompts, salts",
    cases=cases,
    observe=observe,
    right=right,
    mistakes=(
        Mistake(lambda ids, C, salt: [(salt, page) for page in pages(ids, C)],
                "a page's key comes from its own tokens alone; its keys and values depend on all tokens before it too"),
        Mistake(lambda ids, C, salt: [(salt, i, page) for i, page in enumerate(pages(ids, C))],
                "the key has the page's place, but not what stands before it: the same page after two other pages gets the same key"),
        Mistake(lambda ids, C, salt: [(salt, *([()] + pages(ids, C))[i : i + 2]) for i in range(len(pages(ids, C)))],
                "the key has the page and the one before it, and nothing earlier: chain the *key* of the page before, not its tokens"),
        Mistake(lambda ids, C, salt: [key for _, key in right(ids, C, None)],
                "the salt is not in the keys: two tenants share pages"),
        Mistake(lambda ids, C, salt: [(salt, tuple(tuple(sorted(page)) for page in pages(ids[: end + C], C))) for end in range(0, len(ids) - C + 1, C)],
                "two pages with the same tokens in another order get the same key, so one is read for the other: a sum or a set forgets the order"),
        Mistake(with_rest, "a last page that is not full gets a key; its next token would change what the key stands for"),
        Mistake(lambda ids, C, salt: [(salt, frozenset(pages(ids[: end + C], C))) for end in range(0, len(ids) - C + 1, C)],
                "the order of the pages is not in the key: the same pages the other way round get the same key"),
    ),
)  # fmt: skip
