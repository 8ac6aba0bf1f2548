"""A smaller model guesses a tree: several tokens at each place, so that one rejection does not end the block."""

from __future__ import annotations

from math import prod
from typing import Hashable, Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import Cache
from kvedu.errors import CacheFull, RequestError
from kvedu.model.sampling import distribution
from kvedu.model.transformer import Transformer
from kvedu.speculative.draft_cache import DraftCache
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.tree import TokenTree


def siblings(ask: Ask, logits_V: Tensor, path: Sequence[int], width: int) -> tuple[list[int], Tensor | None]:
    """``width`` different tokens after the text and ``path``, and what they were drawn from without replacement.

    Greedy requests get the most likely ones, chosen. Fewer where fewer have any probability.
    """
    if ask.sampling.greedy and ask.sampling.repetition_penalty == 1:
        return torch.topk(logits_V, min(width, len(logits_V))).indices.tolist(), None
    q_V = distribution(logits_V, ask.sampling, [*ask.ids, *path])
    left_V, tokens = q_V.clone(), []
    for _ in range(min(width, int((q_V > 0).sum()))):
        tokens.append(ask.draws.pick(left_V))
        left_V[tokens[-1]] = 0
    return tokens, q_V


class DraftTree(Proposer):
    """Guess a tree with ``widths[d]`` children of each node at depth d; (1, 1, 1) is a chain of three.

    Each level is one pass over the text's missing tokens, then over the whole tree so far, as a tree, which is
    forgotten again: a cache goes on only from a chain. The draft so runs (depth - 1) trees in all, the price of staying
    within the cache contract; the passes are few and wide.
    Trees of drawn tokens: SpecInfer (Miao et al. 2024, 2305.09781); the static shape: Medusa (2401.10774), Sequoia (2402.12374).

    A draft with fewer positions than the target is refused unless ``shorter`` allows it, as in ``DraftModel``.

    Raises ``RequestError`` for no widths, widths below 1, or a cache that cannot forget.
    """

    def __init__(
        self, model: Transformer, widths: Sequence[int] = (3, 2, 1), cache: Cache | None = None, *, shorter: bool = False
    ) -> None:
        if not widths or min(widths) < 1:
            raise RequestError(f"widths are children per node, 1 or more at each depth; got {list(widths)}")
        self.widths, self.deepest = tuple(widths), len(widths)
        self.draft = DraftCache(model, cache, shorter=shorter)

    @property
    def nodes(self) -> int:
        """Nodes of a full tree."""
        return self._nodes(len(self.widths))

    def _nodes(self, depth: int) -> int:
        return sum(prod(self.widths[: d + 1]) for d in range(depth))

    def check(self, target: Transformer) -> None:
        self.draft.check(target)

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        depth = len(self.widths)
        spare = self._nodes(depth - 1) - (depth - 1)
        depths = [self.draft.room(ask.key, ask.ids, min(ask.limit, depth), spare) for ask in asks]
        trees = [_Growing(ask) for ask in asks]
        alive = [i for i, d in enumerate(depths) if d > 0]
        for level, width in enumerate(self.widths):
            alive = [i for i in alive if level < depths[i] and trees[i].frontier]
            logits = self._level([trees[i] for i in alive]) if alive else None
            if logits is None:
                break
            for i, logits_TV in zip(alive, logits):
                trees[i].grow(logits_TV, width)
        return [tree.done() for tree in trees]

    def _level(self, growing: Sequence[_Growing]) -> list[Tensor] | None:
        """Logits after each node of every tree (first level: after the text); None where the draft's cache is full."""
        first = not growing[0].tokens
        new = {tree.ask.key: self.draft.align(tree.ask.key, tree.ask.ids) if first else tree.tokens for tree in growing}
        parents: dict[Hashable, Sequence[int]] | None = None if first else {t.ask.key: t.parents for t in growing}
        try:
            logits = self.draft.run(new, parents)
        except CacheFull:
            return None
        if not first:
            for tree in growing:
                self.draft.back(tree.ask.key, len(tree.ask.ids))
        return logits

    def release(self, key: Hashable) -> None:
        self.draft.release(key)


class _Growing:
    """A tree in the making: its nodes so far, and the last level, whose children come next."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.q: dict[int, Tensor] = {}
        self.frontier = [-1]

    def grow(self, logits_TV: Tensor, width: int) -> None:
        """Children of every node of the last level. ``logits_TV``: a row for each node, or the one after the text."""
        below: list[int] = []
        for node in self.frontier:
            tokens, q_V = siblings(self.ask, logits_TV[node], self._path(node), width)  # the only row is also row -1
            if q_V is not None:
                self.q[node] = q_V
            below += range(len(self.tokens), len(self.tokens) + len(tokens))
            self.tokens += tokens
            self.parents += [node] * len(tokens)
        self.frontier = below

    def _path(self, node: int) -> list[int]:
        path = []
        while node >= 0:
            path.append(self.tokens[node])
            node = self.parents[node]
        return path[::-1]

    def done(self) -> TokenTree:
        return TokenTree(tuple(self.tokens), tuple(self.parents), self.q)
