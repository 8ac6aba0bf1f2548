"""Lab 5, exercise 2: the blocks that hold the longest known prefix, whatever collides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

Page = tuple[int, ...]
Key = Callable[[Any, Page], int]
Entries = dict[int, list[tuple[int, "int | None", Page]]]


def by_hash(before: Any, page: Page) -> int:
    """Collides never, for what it is used for here."""
    return hash((before, page))


def by_zero(before: Any, page: Page) -> int:
    """Every page collides with every other."""
    return 0


def known(prefixes: Iterable[list[int]], C: int, key: Key) -> Entries:
    """What a cache remembers of these prompts, blocks numbered from 0 as they come."""
    entries: Entries = {}
    number = 0
    for ids in prefixes:
        k, parent = None, None
        for start in range(0, len(ids) - C + 1, C):
            page = tuple(ids[start : start + C])
            k = key(k, page)
            same = [block for block, before, tokens in entries.get(k, []) if (before, tokens) == (parent, page)]
            if same:
                parent = same[0]
            else:
                entries.setdefault(k, []).append((number, parent, page))
                parent, number = number, number + 1
    return entries


def cases(fresh: Fresh) -> list[Case]:
    """Prompts that are known, half known, unknown; lengths just at a page's end; two keys, one of which always collides."""
    C = fresh.integer(3, 5)
    a, b, c, d = (fresh.tokens(C, 1000) for _ in range(4))
    x = fresh.tokens(1, 1000)
    remembered = [a + b + c, d + b, a + c]
    prompts = {
        "all of it known, and one token more": a + b + c + x,
        "all of it known, whole pages": a + b + c,
        "one token less": (a + b + c)[:-1],
        "two pages known": a + b + d + x,
        "nothing known": c + a + x,
        "the same page after another first page": d + b + x,
        "a known page with an unknown one before it": a + d + c + x,
        "a page that is known only with another history": d + c + x,
        "shorter than a page": a[:-1],
    }
    made = []
    for key, what in ((by_hash, ""), (by_zero, ", all keys equal")):
        made += [Case(name + what, (ids, C, known(remembered, C, key), key)) for name, ids in prompts.items()]
    return made


def finder(*, last: bool = False, compare: str = "all", go_on: bool = False, drop: bool = False) -> Any:
    """An answer with one part changed; unchanged it is right."""

    def answer(ids: list[int], C: int, entries: Entries, key: Key) -> list[int]:
        blocks: list[int] = []
        k = parent = None
        for start in range(0, len(ids) - C + (1 if last or drop else 0), C):
            page = tuple(ids[start : start + C])
            k = key(k, page)
            fits = [
                block
                for block, before, tokens in entries.get(k, [])
                if compare == "nothing" or (tokens == page and (compare == "tokens" or before == parent))
            ]
            if fits:
                blocks.append(fits[0])
                parent = fits[0]
            elif not go_on:
                break
        return blocks[:-1] if drop else blocks

    return answer


EXERCISE = Exercise(
    title="Find the known blocks",
    read="book/05-prefix-caching",
    hint="Three questions for each page: does it end before the last token? Is there an entry under its key? Does that entry have "
    "these tokens, and this parent?",
    checked="known, half known and unknown prompts, lengths at a page's end, one token less and more, and keys that all collide",
    cases=cases,
    right=finder(),
    mistakes=(
        Mistake(lambda ids, C, entries, key: [], "nothing is ever found; an entry's tokens are a tuple, and a list never equals a tuple"),
        Mistake(finder(compare="nothing"), "an entry is taken because its key fits; a key says where to look, not what is there: compare its tokens and its parent"),
        Mistake(finder(compare="tokens"), "the page's own tokens are compared, but not what stands before it: compare the parent, the block found one page earlier"),
        Mistake(finder(last=True), "the last token is reused too; then there is nothing left to run, and no logits to choose the next token from"),
        Mistake(finder(drop=True), "one block less is always returned; a block is left out only if it holds the prompt's last token"),
        Mistake(finder(go_on=True), "after a page that is not known the search goes on; a prefix ends at the first gap"),
    ),
)
