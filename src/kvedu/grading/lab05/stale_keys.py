"""Lab 5, exercise 4, part one: keys that point to a page which holds something else by now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

Key = Callable[[list[int]], int]


def key(tokens: list[int]) -> int:
    """The key of a prefix."""
    return hash(tuple(tokens))


def cases(fresh: Fresh) -> list[Case]:
    """A sound pool, and one for each way in which a key can lie."""
    prefixes = [fresh.tokens(4 * n, 1000) for n in (1, 2, 3, 1, 2)]
    ids = fresh.shuffled(range(5))

    def pool() -> tuple[dict[int, int], dict[int, list[int]]]:
        return {key(p): b for p, b in zip(prefixes, ids)}, {b: list(p) for p, b in zip(prefixes, ids)}

    made = []

    def case(name: str, spoil: Callable[[dict[int, int], dict[int, list[int]]], object]) -> None:
        block_of, tokens_of = pool()
        spoil(block_of, tokens_of)
        made.append(Case(name, (block_of, tokens_of, key)))

    case("all is well", lambda block_of, tokens_of: None)
    case("a block holds another prefix by now", lambda block_of, tokens_of: tokens_of.update({ids[1]: fresh.tokens(8, 1000)}))
    case("a block holds the same page after other tokens", lambda block_of, tokens_of: tokens_of.update({ids[2]: [1, *prefixes[2][1:]]}))
    case("a block holds nothing by now", lambda block_of, tokens_of: tokens_of.pop(ids[3]))
    case("two keys name one block", lambda block_of, tokens_of: block_of.update({key([5, 5, 5, 5]): ids[0]}))
    case("a block that no key names", lambda block_of, tokens_of: tokens_of.update({7: fresh.tokens(4, 1000)}))
    case("two blocks hold the same, the key names one of them", lambda block_of, tokens_of: tokens_of.update({8: list(prefixes[4])}))
    case("another block holds what the key promises", lambda block_of, tokens_of: block_of.update({key(prefixes[0]): ids[1]}))
    case("no keys", lambda block_of, tokens_of: block_of.clear())
    return made


def right(block_of: dict[int, int], tokens_of: dict[int, list[int]], key: Key) -> set[int]:
    """The right answer."""
    return {k for k, block in block_of.items() if block not in tokens_of or key(tokens_of[block]) != k}


EXERCISE = Exercise(
    title="Keys that lie",
    read="book/05-prefix-caching",
    hint="Go through the keys. What does the block of each hold now, and what is the key of *that*?",
    checked="sound pools, blocks that were overwritten, emptied or named twice, and blocks that no key names",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda block_of, tokens_of, key: {k for k, block in block_of.items() if block in tokens_of and key(tokens_of[block]) != k},
                "a key whose block holds nothing is not seen; it promises tokens that are not there"),
        Mistake(lambda block_of, tokens_of, key: {block_of[k] for k in right(block_of, tokens_of, key)},
                "the blocks are returned; the keys that lie are wanted"),
        Mistake(lambda block_of, tokens_of, key: {key(tokens) for block, tokens in tokens_of.items() if block_of.get(key(tokens)) != block},
                "the search goes from the blocks to the keys; a block that no key names is no lie. Go from the keys to the blocks"),
        Mistake(lambda block_of, tokens_of, key: {k for k in block_of if k not in {key(tokens) for tokens in tokens_of.values()}},
                "a key is taken to be true if *any* block holds its tokens; the block that it names has to"),
    ),
)  # fmt: skip
