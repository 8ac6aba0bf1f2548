"""Prompt lookup: guess that what followed these last tokens before follows them again. No model, no training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Hashable, Sequence

from kvedu.errors import RequestError
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.tree import EMPTY, TokenTree


@dataclass
class _Index:
    """Where each n-gram of a text was last *followed* by something: n-gram to the place after it."""

    done: int = 0
    after: dict[tuple[int, ...], int] = field(default_factory=dict)

    def grow(self, ids: Sequence[int], sizes: range) -> None:
        """Enter the n-grams that end before the last token; the text's own end is never among them."""
        for end in range(self.done + 1, len(ids)):
            for n in sizes:
                if n <= end:
                    self.after[tuple(ids[end - n : end])] = end
        self.done = max(self.done, len(ids) - 1)


class NGram(Proposer):
    """Guess ``k`` tokens by the text itself: those after the latest earlier place where its last n tokens stand.

    The longest n from ``longest`` down to ``shortest`` that stands elsewhere counts. A guess that reaches the
    end of the text goes on with its own beginning, so that a short cycle still gives k tokens.
    Guesses are chosen, not drawn. Cost: O(n) dictionary entries for each new token, however long the text is.
    Saxena 2023, "Prompt lookup decoding"; LLMA (Yang et al. 2023, 2304.04487).

    Raises ``RequestError`` for settings out of range.
    """

    def __init__(self, k: int = 8, longest: int = 3, shortest: int = 1) -> None:
        if k < 1 or not 1 <= shortest <= longest:
            raise RequestError(f"k must be 1 or more and 1 <= shortest <= longest; got k {k}, shortest {shortest}, longest {longest}")
        self.k, self.deepest, self.sizes = k, k, range(shortest, longest + 1)
        self._texts: dict[Hashable, _Index] = {}

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        return [self._lookup(ask) for ask in asks]

    def _lookup(self, ask: Ask) -> TokenTree:
        index = self._texts.setdefault(ask.key, _Index())
        index.grow(ask.ids, self.sizes)
        for n in reversed(self.sizes):
            start = index.after.get(tuple(ask.ids[-n:])) if n <= len(ask.ids) else None
            if start is not None:
                text = list(ask.ids)
                for i in range(min(self.k, ask.limit)):
                    text.append(text[start + i])
                return TokenTree.chain(text[len(ask.ids) :])
        return EMPTY

    def release(self, key: Hashable) -> None:
        self._texts.pop(key, None)
