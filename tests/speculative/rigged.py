"""A proposer that guesses what a test tells it to."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Hashable, Sequence

from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.tree import TokenTree


class Rigged(Proposer):
    """Guesses ``k`` tokens of ``script`` (token after each position), the first ``right(key, round)`` of them rightly.

    A wrong guess is the right token plus one, modulo ``V``. Keys that are open stand in ``rounds``. Heeds no limit
    where ``greedy`` says so, as a careless proposer might.
    """

    def __init__(
        self, script: dict[int, int], k: int = 4, right: Callable[[Hashable, int], int] = lambda key, round: 99, V: int = 97, heeds: bool = True
    ) -> None:
        self.script, self.k, self.right, self.V, self.heeds = script, k, right, V, heeds
        self.rounds: Counter[Hashable] = Counter()
        self.asked: list[Ask] = []

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        self.asked += asks
        return [self._guess(ask) for ask in asks]

    def _guess(self, ask: Ask) -> TokenTree:
        right = self.right(ask.key, self.rounds[ask.key])
        self.rounds[ask.key] += 1
        last = len(ask.ids) - 1
        k = min(self.k, ask.limit) if self.heeds else self.k
        return TokenTree.chain([(self.script.get(last + i, 0) + (i >= right)) % self.V for i in range(k)])

    def release(self, key: Hashable) -> None:
        self.rounds.pop(key, None)
