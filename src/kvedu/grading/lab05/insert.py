"""Lab 5, exercise 3, part two: put a sequence into a radix tree, splitting a run where two part."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab05._tree import Node, insertion, picture


def cases(fresh: Fresh) -> list[Case]:
    """Sequences that go on, part in a run, part where a run ends, are known already, or split a node that has children."""
    a, b, c, d = (fresh.shuffled(range(100 * i, 100 * i + 100))[: fresh.integer(4, 6)] for i in range(4))
    return [
        Case("two that have nothing in common", ([a, b],)),
        Case("the same twice", ([a + b, a + b],)),
        Case("one goes on where the other ends", ([a, a + b],)),
        Case("one ends in the middle of the other", ([a + b, a[:2]],)),
        Case("two part in the middle of a run", ([a + b, a + c],)),
        Case("a third parts where two have parted", ([a + b, a + c, a + d],)),
        Case("a node with children is split", ([a + b, a + c, a[:2] + d],)),
        Case("two levels down", ([a + b, a + c, a + b[:2] + d, a + b[:2] + c],)),
    ]


def observe(answer: Any, sequences: list[list[int]]) -> list[Any]:
    """What the answer returns, and the tree, after each sequence."""
    root, seen = Node([]), []
    for ids in sequences:
        known = answer(root, ids)
        try:
            seen.append((known, picture(root)))
        except (AttributeError, TypeError):
            raise Unfit("a node has .tokens, a list, and .children, a dictionary from first token to Node; something else stands in the tree") from None
        except RecursionError:
            raise Unfit("a node is its own descendant") from None
    return seen


EXERCISE = Exercise(
    title="Insert and split",
    read="book/05-prefix-caching",
    hint="If a run fits only in part and more tokens are to come, cut it: the run keeps the common part, and its only child is a new node "
    "with the rest of its tokens and all of its old children.",
    checked="the tree after each of several sequences, and how many tokens it knew before: new, known, longer, shorter, parting in a run or at its end, two levels deep",
    cases=cases,
    observe=observe,
    right=insertion(),
    parts=("tokens known before", "tree"),
    mistakes=(
        Mistake(insertion(keep_children=False), "the children of the run that was cut are lost; they belong to its lower part"),
        Mistake(insertion(cut_upper=False), "the upper part of the cut run keeps all of its tokens; it should end where the two part"),
        Mistake(insertion(split=False), "the run that fits in part is replaced by the new sequence; cut it, and keep its rest beside the new one"),
        Mistake(insertion(always_split=True), "a run is cut where the new sequence merely ends; nothing parts there, so nothing has to change"),
        Mistake(insertion(count="new"), "the tokens that are new are counted; those that were known before are wanted"),
        Mistake(insertion(go_down=False), "the rest is hung below the first run without a look at its children: go down as far as runs fit"),
    ),
)
