"""Medusa: guess a tree at one stroke, every depth by a head of its own."""

from __future__ import annotations

from typing import Hashable, Sequence

from torch import Tensor, cat

from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer
from kvedu.speculative.medusa_heads import MedusaHeads
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.reduced_head import ReducedHead
from kvedu.speculative.tree import EMPTY, TokenTree
from kvedu.speculative.vocabulary import DraftVocabulary


class Medusa(Proposer):
    """Guess a tree with ``widths[d]`` children of each node at depth d, from the target's last output alone; None: a chain.

    No cache and no second pass: all heads together are one product with the reduced head. The price is that a head
    does not know what the one before it guessed, so deep guesses seldom fit each other.
    Raises ``RequestError`` for more depths than heads, widths below 1, or heads or a vocabulary made for another target.
    """

    def __init__(
        self, heads: MedusaHeads, vocabulary: DraftVocabulary, target: Transformer, widths: Sequence[int] | None = None
    ) -> None:
        k = len(heads.heads)
        self.heads, self.widths = heads, (1,) * k if widths is None else tuple(widths)
        if not 1 <= len(self.widths) <= k or min(self.widths) < 1:
            raise RequestError(f"widths are children per node for at most {k} depths, 1 or more each; got {list(self.widths)}")
        if heads.shape.R != len(vocabulary):
            raise RequestError(f"the heads were trained to guess {heads.shape.R} tokens, the vocabulary has {len(vocabulary)}")
        self.deepest = len(self.widths)
        heads.shape.check(target)
        self.reduced = ReducedHead(vocabulary, target)
        self._last: dict[Hashable, tuple[int, Tensor]] = {}

    def check(self, target: Transformer) -> None:
        self.heads.shape.check(target)
        self.reduced.check(target)

    def taps(self, target: Transformer) -> tuple[int, ...]:
        return self.heads.shape.taps

    def feed(self, key: Hashable, start: int, features_TE: Tensor) -> None:
        self._last[key] = (start + len(features_TE), features_TE[-1:])

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        known = [self._last.get(ask.key, (0, None)) for ask in asks]
        ready = [i for i, (ask, (end, _)) in enumerate(zip(asks, known)) if end == len(ask.ids) - 1]
        trees = [EMPTY] * len(asks)
        if ready:
            depth = len(self.widths)
            f_BkM = self.heads(cat([known[i][1] for i in ready]))[:, :depth]
            logits = self.reduced.logits(f_BkM.flatten(0, 1)).view(len(ready), depth, -1)
            for i, logits_kR in zip(ready, logits):
                trees[i] = self._tree(asks[i], logits_kR)
        return trees

    def _tree(self, ask: Ask, logits_kR: Tensor) -> TokenTree:
        tokens: list[int] = []
        parents: list[int] = []
        drawn: dict[int, Tensor] = {}
        level: dict[int, tuple[int, ...]] = {-1: ()}
        for width, logits_R in zip(self.widths[: ask.limit], logits_kR):
            below = {}
            for node, path in level.items():
                found, q_V = self.reduced.siblings(ask, logits_R, path, width)
                if q_V is not None:
                    drawn[node] = q_V
                for token in found:
                    below[len(tokens)] = (*path, token)
                    tokens.append(token)
                    parents.append(node)
            level = below
        return TokenTree(tuple(tokens), tuple(parents), drawn)

    def release(self, key: Hashable) -> None:
        self._last.pop(key, None)
