"""A round's guesses as a tree of tokens; a chain is a tree of one branch."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Mapping, Sequence

from torch import Tensor

from kvedu.errors import RequestError


@dataclass(frozen=True, eq=False)
class TokenTree:
    """Guessed tokens that hang below the last token of the text.

    Node i is ``tokens[i]`` and hangs from node ``parents[i] < i``, or from the last token of the text where
    that is -1. Children of one node stand in the order in which they were guessed.

    ``q`` maps a node (or -1) to the distribution ``[V]`` (float64, sum 1) from which its children
    were *drawn*, one after the other without replacement. A node that is not in ``q`` has children
    that were *chosen* (looked up, or a list of the best): each counts as drawn from a distribution that is 1 at it.
    Which of the two holds decides what keeps the output exact, so a proposer must say what it did: a token
    picked by argmax and reported as a draw changes the text (C076).

    Raises ``RequestError`` for a parent that is not earlier, two equal siblings, or a drawn token of probability 0.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    q: Mapping[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise RequestError(f"a tree of {len(self.tokens)} tokens has {len(self.parents)} parents; give one for each")
        for i, (token, parent) in enumerate(zip(self.tokens, self.parents)):
            if not -1 <= parent < i:
                raise RequestError(f"node {i} hangs from {parent}; a parent is an earlier node, or -1 for the text's last token")
            if parent in self.q and not self.q[parent][token] > 0:
                raise RequestError(f"node {i} (token {token}) is said to be drawn from a distribution that gives it probability 0")
        for parent, nodes in self.children.items():
            if len({self.tokens[i] for i in nodes}) < len(nodes):
                raise RequestError(f"node {parent} has two children with one token; siblings are drawn without replacement")

    @classmethod
    def chain(cls, tokens: Sequence[int], q: Sequence[Tensor] | None = None) -> TokenTree:
        """A tree of one branch. ``q[i]`` is what ``tokens[i]`` was drawn from; None where the tokens were chosen."""
        drawn = {} if q is None else {i - 1: row for i, row in enumerate(q)}
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)), drawn)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether it has one branch."""
        return self.parents == tuple(range(-1, len(self) - 1))

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Children of each node that has any, and of -1, in the order in which they were guessed."""
        found: dict[int, list[int]] = {}
        for i, parent in enumerate(self.parents):
            found.setdefault(parent, []).append(i)
        return found

    @cached_property
    def depths(self) -> list[int]:
        """Depth of each node; the children of the text's last token have depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return depths

    @property
    def depth(self) -> int:
        """Depth of the deepest node; 0 for an empty tree."""
        return max(self.depths, default=0)

    def path(self, node: int) -> list[int]:
        """Nodes from the first level down to this one; empty for -1."""
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def cut(self, *, depth: int, nodes: int) -> TokenTree:
        """The tree without what is deeper than ``depth``, and of the rest the first ``nodes``.

        What is dropped is decided by places, never by which tokens stand there: verification stays exact.
        """
        kept = [i for i in range(len(self)) if self.depths[i] <= depth][: max(nodes, 0)]
        if len(kept) == len(self):
            return self
        place = {-1: -1} | {old: new for new, old in enumerate(kept)}
        return TokenTree(
            tuple(self.tokens[i] for i in kept),
            tuple(place[self.parents[i]] for i in kept),
            {place[node]: row for node, row in self.q.items() if node in place},
        )


EMPTY = TokenTree()
"""No guess: verifying it is plain decoding."""
