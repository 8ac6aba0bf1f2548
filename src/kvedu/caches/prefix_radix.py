"""Prefix reuse by a radix tree over blocks, as in SGLang: common beginnings are common branches.

Each node carries a run of blocks; a run is split where two histories part. Only leaves are
evicted, block by block from their ends, the least recently used leaf first, so that what is
remembered can always be reached.
"""

from __future__ import annotations

from itertools import count
from typing import Hashable, Iterator, Sequence

from kvedu.caches.blocks import Tokens


class _Node:
    """A run of blocks and their tokens below ``parent``; children are keyed by their first block's tokens."""

    def __init__(self, parent: _Node | None, tokens: list[Tokens], blocks: list[int]) -> None:
        self.parent, self.tokens, self.blocks = parent, tokens, blocks
        self.children: dict[Tokens, _Node] = {}
        self.used = 0


class RadixReuse:
    """One tree per salt. A match costs O(tokens), an eviction O(leaves)."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._roots: dict[Hashable, _Node] = {}
        self._node_of: dict[int, _Node] = {}
        self._clock = count(1)

    def match(self, tokens: Sequence[int], salt: Hashable = None) -> list[int]:
        blocks, now = [], next(self._clock)
        for node, n in self._walk(self._pages(tokens), salt):
            node.used = now
            blocks += node.blocks[:n]
        return blocks

    def peek(self, tokens: Sequence[int], salt: Hashable = None) -> int:
        return sum(n for _, n in self._walk(self._pages(tokens), salt))

    def remember(self, tokens: Sequence[int], blocks: Sequence[int], salt: Hashable = None) -> None:
        """A sequence that computed a prefix which the tree holds in other blocks is not added below it:
        the tree's own blocks would then be needed by a sequence that does not refer to them."""
        pages, now = self._pages(tokens), next(self._clock)
        path = list(self._walk(pages, salt))
        for node, _ in path:
            node.used = now
        shared = [block for node, n in path for block in node.blocks[:n]]
        done = len(shared)
        if done == len(pages) or shared != list(blocks[:done]) or any(b in self._node_of for b in blocks[done:]):
            return
        node = path[-1][0] if path else self._roots.setdefault(salt, _Node(None, [], []))
        if path and path[-1][1] < len(node.tokens):
            self._split(node, path[-1][1])
        if path and not node.children:
            node.tokens += pages[done:]  # the same sequence has grown: so does its leaf
            node.blocks += blocks[done:]
        else:
            child = _Node(node, pages[done:], list(blocks[done:]))
            node.children[pages[done]] = child
            node = child
            node.used = now
        for block in blocks[done:]:
            self._node_of[block] = node

    def holds(self, block: int) -> bool:
        return block in self._node_of

    def forget(self, block: int) -> list[int]:
        """With it goes everything that can only be reached through it."""
        node = self._node_of[block]
        at = node.blocks.index(block)
        lost, below = node.blocks[at:], list(node.children.values())
        for child in below:
            lost += child.blocks
            below += child.children.values()
        for gone in lost:
            del self._node_of[gone]
        first = node.tokens[0]
        del node.blocks[at:], node.tokens[at:]
        node.children.clear()
        if not node.blocks:
            del node.parent.children[first]
        return lost

    def released(self, block: int) -> None:
        self._node_of[block].used = next(self._clock)

    def evict(self, in_use: Sequence[int]) -> int | None:
        leaves = (node for node in self._leaves() if not in_use[node.blocks[-1]])
        leaf = min(leaves, key=lambda node: node.used, default=None)
        return None if leaf is None else self.forget(leaf.blocks[-1])[0]

    def _leaves(self) -> Iterator[_Node]:
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            if node.children:
                stack += node.children.values()
            else:
                yield node

    def _pages(self, tokens: Sequence[int]) -> list[Tokens]:
        size = self.block_size
        return [tuple(tokens[i : i + size]) for i in range(0, len(tokens) - size + 1, size)]

    def _walk(self, pages: list[Tokens], salt: Hashable) -> Iterator[tuple[_Node, int]]:
        """Nodes along the longest remembered prefix, each with how many of its blocks belong to it."""
        node, at = self._roots.get(salt), 0
        while node is not None and at < len(pages) and (child := node.children.get(pages[at])) is not None:
            n = 1
            while n < len(child.tokens) and at + n < len(pages) and child.tokens[n] == pages[at + n]:
                n += 1
            yield child, n
            if n < len(child.tokens):
                return
            node, at = child, at + n

    def _split(self, node: _Node, n: int) -> None:
        """Cut a node after ``n`` blocks: the rest, with the children, becomes its only child."""
        rest = _Node(node, node.tokens[n:], node.blocks[n:])
        rest.children, rest.used = node.children, node.used
        for child in rest.children.values():
            child.parent = rest
        for block in rest.blocks:
            self._node_of[block] = rest
        del node.tokens[n:], node.blocks[n:]
        node.children = {rest.tokens[0]: rest}
