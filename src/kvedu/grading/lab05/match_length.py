"""Lab 5, exercise 3, part one: how many tokens of a prompt a radix tree knows."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake, call
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab05._tree import Node, common, insertion


def cases(fresh: Fresh) -> list[Case]:
    """One tree of two levels, and prompts that end or part at every kind of place in it."""
    word = [fresh.shuffled(range(100 * i, 100 * i + 100))[: fresh.integer(4, 7)] for i in range(5)]
    stem, left, right, leaf, other = word
    sequences = [stem + left, stem + right, stem + left[:2] + leaf, other]
    prompts = {
        "all of a sequence": stem + left,
        "a sequence and more": stem + left + [999],
        "the end lies in a run": stem + left[:3],
        "the end lies in the first run": stem[:2],
        "parts in the middle of a run": stem + right[:2] + [999, 998],
        "parts in the first run": stem[:3] + [999] + stem[3:],
        "two levels down": stem + left[:2] + leaf[:2] + [999],
        "parts where a run ends": stem + [999],
        "unknown from the start": [999, *stem],
        "another branch": other[:-1],
        "nothing": [],
    }
    return [Case(name, (sequences, ids)) for name, ids in prompts.items()]


def observe(answer: Any, sequences: list[list[int]], ids: list[int]) -> Any:
    """What the answer says of a tree into which the sequences went."""
    root, insert = Node([]), insertion()
    for sequence in sequences:
        insert(root, sequence)
    return call(answer, root, ids)


def walk(*, partial: str = "counted", deep: bool = True) -> Any:
    """An answer with one part changed; unchanged it is right."""

    def answer(root: Node, ids: list[int]) -> int:
        node, at = root, 0
        while at < len(ids) and ids[at] in node.children:
            node = node.children[ids[at]]
            n = common(node.tokens, ids[at:])
            if n < len(node.tokens):
                return at + {"counted": n, "dropped": 0, "whole": len(node.tokens)}[partial]
            at += n
            if not deep:
                break
        return at

    return answer


def first_token_only(root: Node, ids: list[int]) -> int:
    """Takes a run for known if its first token fits, and goes on."""
    node, at = root, 0
    while at < len(ids) and ids[at] in node.children:
        node = node.children[ids[at]]
        at += len(node.tokens)
    return min(at, len(ids))


EXERCISE = Exercise(
    title="Match in a radix tree",
    read="book/05-prefix-caching",
    hint="At each node: which child begins with the next token? How many tokens of its run fit? Go on only if all of them do.",
    checked="prompts that end or part in the middle of a run, at its end, two levels down, at once, or not at all",
    cases=cases,
    observe=observe,
    right=walk(),
    mistakes=(
        Mistake(walk(partial="dropped"), "a run that fits only in part counts for nothing; its beginning is known too"),
        Mistake(walk(partial="whole"), "a run that fits only in part is counted whole"),
        Mistake(walk(deep=False), "the search ends after the first run; where all of a run fits, go on with its children"),
        Mistake(first_token_only, "only the first token of a run is compared; the tokens after it may be others"),
    ),
)
