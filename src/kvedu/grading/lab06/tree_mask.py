"""Lab 6, exercise 4, part one: who sees whom in a tree of guesses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kvedu.grading.exercise import Exercise, Mistake
from kvedu.grading.lab06._tree import cases
from kvedu.speculative.tree import TokenTree


def right(parents: list[int]) -> Tensor:
    """Itself and its ancestors, by the library's tree."""
    tree = TokenTree(tuple(range(len(parents))), tuple(parents))
    mask_TT = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for i in range(len(parents)):
        mask_TT[i, tree.path(i)] = True
    return mask_TT


def filled(sees: Callable[[list[int], int, int], bool]) -> Callable[[list[int]], Tensor]:
    """The mask of a relation between nodes."""

    def answer(parents: list[int]) -> Tensor:
        T = len(parents)
        return torch.tensor([[bool(sees(parents, i, j)) for j in range(T)] for i in range(T)], dtype=torch.bool).reshape(T, T)

    return answer


def depth(parents: list[int], i: int) -> int:
    """0 for a child of the text."""
    return 0 if parents[i] < 0 else 1 + depth(parents, parents[i])


EXERCISE = Exercise(
    title="The tree mask",
    read="book/06-speculative-decoding",
    hint="A parent stands before its children. So when you come to node i, its parent's row is ready: node i sees all that its parent sees, and itself.",
    checked="chains, siblings, branches in any order, random trees, one node and none",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(filled(lambda parents, i, j: j <= i), "every earlier node is seen, uncles too; a node sees only what stands on its own path"),
        Mistake(filled(lambda parents, i, j: j == i or depth(parents, j) < depth(parents, i)),
                "all nodes of smaller depth are seen; an uncle has a smaller depth too, and it is no ancestor"),
        Mistake(filled(lambda parents, i, j: j == i or parents[i] == j), "only the parent is seen; grandparents stand on the path too"),
        Mistake(filled(lambda parents, i, j: j != i and bool(right(parents)[i, j])), "a node does not see itself; a query sees its own key, like any token"),
        Mistake(filled(lambda parents, i, j: bool(right(parents)[j, i])), "the mask is turned over: row i says what node i sees, and it sees upwards"),
        Mistake(lambda parents: right(parents).float(), "True and False were wanted (dtype torch.bool), not ones and zeros"),
    ),
)  # fmt: skip
