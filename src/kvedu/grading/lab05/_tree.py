"""A radix tree over tokens as lab 5 has it, its insertion with parts that can be changed, and the tree as plain lists."""

from __future__ import annotations

from typing import Any


class Node:
    """A run of tokens, and the nodes that go on from it by their first token."""

    def __init__(self, tokens: list[int], children: dict[int, Node] | None = None) -> None:
        self.tokens, self.children = list(tokens), children or {}


def common(a: list[int], b: list[int]) -> int:
    """How many tokens two lists have in common at the front."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def insertion(*, keep_children: bool = True, cut_upper: bool = True, split: bool = True, always_split: bool = False,
              count: str = "known", go_down: bool = True) -> Any:  # fmt: skip
    """``insert`` with one part changed; unchanged it is right."""

    def insert(root: Node, ids: list[int]) -> int:
        node, at = root, 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None or not (split or common(child.tokens, ids[at:]) == len(child.tokens)):
                node.children[ids[at]] = Node(ids[at:])
                break
            n = common(child.tokens, ids[at:])
            if n < len(child.tokens) and (always_split or at + n < len(ids)):
                rest = Node(child.tokens[n:], child.children if keep_children else None)
                child.children = {rest.tokens[0]: rest}
                if cut_upper:
                    child.tokens = child.tokens[:n]
            node, at = child, at + n
            if not go_down and at < len(ids):
                node.children[ids[at]] = Node(ids[at:])
                break
        return at if count == "known" else len(ids) - at

    return insert


def picture(node: Any, depth: int = 0) -> list[list[Any]]:
    """A tree as plain lists, a node after its parent: depth, the token that it is found by, its run."""
    rows = []
    for first in sorted(node.children):
        child = node.children[first]
        rows += [[depth, int(first), [int(token) for token in child.tokens]], *picture(child, depth + 1)]
    return rows
