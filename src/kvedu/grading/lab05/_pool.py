"""Lab 5's pool of pages that are found by key, with ``take`` as it should be and as it was planted."""

from __future__ import annotations

from collections import deque


class Right:
    """The lab's class with a sound ``take``."""

    def __init__(self, n_blocks: int, C: int) -> None:
        self.C, self.free, self.users = C, deque(range(n_blocks)), [0] * n_blocks
        self.block_of: dict[int, int] = {}
        self.tokens_of: dict[int, list[int]] = {}

    def key(self, tokens: list[int]) -> int:
        return hash(tuple(tokens))

    def admit(self, ids: list[int]) -> tuple[list[int], int]:
        table: list[int] = []
        for end in range(self.C, len(ids), self.C):
            block = self.block_of.get(self.key(ids[:end]))
            if block is None:
                break
            if self.users[block] == 0:
                self.free.remove(block)
            self.users[block] += 1
            table.append(block)
        reused = len(table) * self.C
        while len(table) * self.C < len(ids):
            table.append(self.take())
            prefix = ids[: len(table) * self.C]
            self.tokens_of[table[-1]] = prefix
            if len(prefix) == len(table) * self.C:
                self.block_of[self.key(prefix)] = table[-1]
        return table, reused

    def take(self) -> int:
        block = self.free.popleft()
        old = self.tokens_of.pop(block, None)
        if old is not None and self.block_of.get(self.key(old)) == block:
            del self.block_of[self.key(old)]
        self.users[block] = 1
        return block

    def leave(self, table: list[int]) -> None:
        for block in reversed(table):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.free.append(block)


class AsItWas(Right):
    """The planted fault: the key stays."""

    def take(self) -> int:
        block = self.free.popleft()
        self.tokens_of.pop(block, None)
        self.users[block] = 1
        return block


class ForgetsTheTwin(Right):
    """Forgets the key even where it names another block by now."""

    def take(self) -> int:
        block = self.free.popleft()
        old = self.tokens_of.pop(block, None)
        if old is not None:
            self.block_of.pop(self.key(old), None)
        self.users[block] = 1
        return block


class ForgetsAll(Right):
    """Forgets every key."""

    def take(self) -> int:
        block = self.free.popleft()
        self.tokens_of.pop(block, None)
        self.block_of.clear()
        self.users[block] = 1
        return block


class TakesTheNewest(Right):
    """Takes the block that was given back last, which is the one most likely to be wanted."""

    def take(self) -> int:
        self.free.rotate(1)
        return super().take()
