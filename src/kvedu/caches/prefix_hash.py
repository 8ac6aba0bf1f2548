"""Prefix reuse by chained block hashes, as in vLLM: a block is found by the hash of itself and all before it.

A hash only says where to look. What is found is compared, token by token and ancestor by
ancestor, before it is used: with a hash that always returns 0 the outputs are the same, only slower.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Callable, Hashable, Sequence

from kvedu.caches.blocks import Tokens


@dataclass(frozen=True, eq=False)
class _Entry:
    """A remembered block: its tokens and the entry of the block before it (None at the start)."""

    block: int
    key: Hashable
    tokens: Tokens
    salt: Hashable
    parent: _Entry | None


class HashReuse:
    """Least recently used over freed blocks; a hit costs O(tokens). ``hash_`` can be replaced to force collisions."""

    def __init__(self, block_size: int, hash_: Callable[[Hashable], int] = hash) -> None:
        self.block_size, self._hash = block_size, hash_
        self._by_key: dict[Hashable, list[_Entry]] = {}
        self._by_block: dict[int, _Entry] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    def match(self, tokens: Sequence[int], salt: Hashable = None) -> list[int]:
        blocks = self._chain(tokens, salt)
        for block in reversed(blocks):  # the tail stays the first to go
            if block in self._idle:
                self._idle.move_to_end(block)
        return blocks

    def peek(self, tokens: Sequence[int], salt: Hashable = None) -> int:
        return len(self._chain(tokens, salt))

    def remember(self, tokens: Sequence[int], blocks: Sequence[int], salt: Hashable = None) -> None:
        parent = None
        for i, block in enumerate(blocks):
            own = tuple(tokens[i * self.block_size : (i + 1) * self.block_size])
            entry = self._find(parent, own, salt)
            if entry is None:
                if block in self._by_block:  # it is remembered under another history, which still is true of it
                    return
                entry = _Entry(block, self._key(parent, own, salt), own, salt, parent)
                self._by_key.setdefault(entry.key, []).append(entry)
                self._by_block[block] = entry
            parent = entry

    def holds(self, block: int) -> bool:
        return block in self._by_block

    def forget(self, block: int) -> list[int]:
        """Later blocks of its chain stay, though no match reaches them, until they are evicted in their turn."""
        entry = self._by_block.pop(block)
        same_key = self._by_key[entry.key]
        same_key.remove(entry)
        if not same_key:
            del self._by_key[entry.key]
        self._idle.pop(block, None)
        return [block]

    def released(self, block: int) -> None:
        self._idle[block] = None
        self._idle.move_to_end(block)

    def evict(self, in_use: Sequence[int]) -> int | None:
        for block in self._idle:
            if not in_use[block]:
                self.forget(block)
                return block
        return None

    def _chain(self, tokens: Sequence[int], salt: Hashable) -> list[int]:
        blocks, parent = [], None
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            parent = self._find(parent, tuple(tokens[start : start + self.block_size]), salt)
            if parent is None:
                break
            blocks.append(parent.block)
        return blocks

    def _key(self, parent: _Entry | None, tokens: Tokens, salt: Hashable) -> int:
        return self._hash((parent.key if parent else None, tokens, salt))

    def _find(self, parent: _Entry | None, tokens: Tokens, salt: Hashable) -> _Entry | None:
        for entry in self._by_key.get(self._key(parent, tokens, salt), ()):
            if entry.parent is parent and entry.tokens == tokens and entry.salt == salt:
                return entry
        return None
