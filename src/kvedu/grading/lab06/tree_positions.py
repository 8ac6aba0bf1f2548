"""Lab 6, exercise 4, part two: where the nodes of a tree stand."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab06._tree import trees
from kvedu.speculative.tree import TokenTree


def cases(fresh: Fresh) -> list[Case]:
    """Each tree after a text of some length."""
    return [Case(f"{name}, after {length} tokens", (parents, length)) for name, parents in trees(fresh) for length in (fresh.integer(1, 50),)]


def right(parents: list[int], length: int) -> list[int]:
    """A child of the text's last token stands right after it."""
    tree = TokenTree(tuple(range(len(parents))), tuple(parents))
    return [length - 1 + depth for depth in tree.depths]


EXERCISE = Exercise(
    title="Positions in a tree",
    read="book/06-speculative-decoding",
    hint="The text's tokens stand at 0 to length - 1. What position would a node have if its path were the text's continuation?",
    checked="chains, siblings, branches in any order, random trees, one node and none, after texts of several lengths",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda parents, length: [length + i for i in range(len(parents))], "positions count nodes; siblings are guesses for the *same* place: count depth"),
        Mistake(lambda parents, length: [x + 1 for x in right(parents, length)], "one too many: the text's tokens stand at 0 to length - 1, so its children stand at `length`"),
        Mistake(lambda parents, length: [x - 1 for x in right(parents, length)], "one too few: the text's last token stands at length - 1, and its children right after it"),
        Mistake(lambda parents, length: [x - length for x in right(parents, length)], "the depths are right, and the text before them is forgotten: add its length"),
    ),
)
