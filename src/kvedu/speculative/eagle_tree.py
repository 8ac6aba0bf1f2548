"""EAGLE-2: the head's own probabilities decide where the tree of guesses grows."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import Cache
from kvedu.errors import CacheFull, RequestError
from kvedu.model.transformer import Transformer
from kvedu.speculative.eagle import Eagle
from kvedu.speculative.eagle_head import EagleHead
from kvedu.speculative.proposer import Ask
from kvedu.speculative.reduced_head import chooses
from kvedu.speculative.tree import EMPTY, TokenTree
from kvedu.speculative.vocabulary import DraftVocabulary


class EagleTree(Eagle):
    """Guess a tree ``depth`` levels deep whose shape follows the head's confidence; of all its nodes the best ``nodes`` are verified.

    At each level the ``width`` most probable paths grow ``width`` children each. A path is as probable as the product of its
    tokens' draft probabilities, which in EAGLE is close to the chance that it is accepted. So much for greedy requests. A drawn
    guess may not be left out for being unlikely (see ``Proposer``): other requests get a chain of ``depth`` draws.

    EAGLE-2 (Li et al. 2024, 2406.16858). The tree so far runs again at each level and is forgotten, as in ``DraftTree``.
    Raises ``RequestError`` as ``Eagle``, and for a width or a number of nodes below 1.
    """

    def __init__(
        self,
        head: EagleHead,
        vocabulary: DraftVocabulary,
        target: Transformer,
        depth: int = 4,
        width: int = 3,
        nodes: int = 8,
        cache: Cache | None = None,
    ) -> None:
        if width < 1 or nodes < 1:
            raise RequestError(f"a tree grows 1 or more children and keeps 1 or more nodes; got width {width}, nodes {nodes}")
        super().__init__(head, vocabulary, target, depth, cache)
        self.width, self.nodes = width, nodes

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        drawn = [ask for ask in asks if not chooses(ask)]
        chosen = [ask for ask in asks if chooses(ask)]
        found = dict(zip(map(id, drawn), super().propose(drawn))) if drawn else {}
        found |= dict(zip(map(id, chosen), self._trees(chosen)))
        return [found[id(ask)] for ask in asks]

    def _trees(self, asks: Sequence[Ask]) -> list[TokenTree]:
        depths = [self._depth(ask) for ask in asks]
        alive = [i for i, depth in enumerate(depths) if depth > 0]
        if not alive or not self._catch_up([asks[i] for i in alive]):
            return [EMPTY] * len(asks)
        trees = {i: _Growing(self._texts[asks[i].key].last_M, self.width) for i in alive}
        for level in range(self.k):
            alive = [i for i in alive if level < depths[i]]
            if level and (not alive or not self._expand([(asks[i], trees[i]) for i in alive])):
                break
            rows = torch.cat([trees[i].outputs() for i in alive])
            best = torch.log_softmax(self.reduced.logits(rows).float(), dim=-1).topk(min(self.width, len(self.reduced.vocabulary)), dim=-1)
            end = 0
            for i in alive:
                start, end = end, end + len(trees[i].grown)
                trees[i].grow(best.values[start:end].tolist(), best.indices[start:end].tolist())
        return [trees[i].best(self.nodes, self.reduced.vocabulary.ids) if i in trees else EMPTY for i in range(len(asks))]

    def _expand(self, growing: Sequence[tuple[Ask, _Growing]]) -> bool:
        """Run every node that is to have children, as a tree; False where the cache has no room for it."""
        counts, parents, ids, inputs = {}, {}, [], []
        for ask, tree in growing:
            seq = self._texts[ask.key].seq
            tree.choose()
            counts[seq], parents[seq] = len(tree.run), tree.run_parents()
            ids += [self.reduced.vocabulary.ids[tree.places[node]] for node in tree.run]
            inputs += [tree.f[tree.parents[node]] for node in tree.run]
        embedded_NM = self.reduced.embed(torch.tensor(ids, device=inputs[0].device))
        try:
            with self.cache.step(counts, parents) as view:
                out_NM = self.head.step(embedded_NM, torch.stack(inputs), view)
        except CacheFull:
            return False
        end = 0
        for ask, tree in growing:
            tree.f |= {node: out_NM[end + i] for i, node in enumerate(tree.run)}
            end += len(tree.run)
            self._forget_guesses(ask.key)
        return True


class _Growing:
    """A tree in the making: nodes, the log-probability of the path to each, features after those that were run."""

    def __init__(self, last_M: Tensor, width: int) -> None:
        self.width = width
        self.places: list[int] = []
        self.parents: list[int] = []
        self.paths: dict[int, float] = {-1: 0.0}
        self.f: dict[int, Tensor] = {-1: last_M}
        self.run: list[int] = []
        self.grown, self.level = [-1], [-1]

    def choose(self) -> None:
        """The best of the last level's nodes grow next."""
        self.grown = sorted(sorted(self.level, key=self.paths.__getitem__, reverse=True)[: self.width])
        self.run += self.grown

    def run_parents(self) -> list[int]:
        """Parents of the nodes that are run, counted among these."""
        place = {node: i for i, node in enumerate(self.run)}
        return [place.get(self.parents[node], -1) for node in self.run]

    def outputs(self) -> Tensor:
        """Features of the nodes that grow: ``[n, M]``."""
        return torch.stack([self.f[node] for node in self.grown])

    def grow(self, log_q: Sequence[Sequence[float]], places: Sequence[Sequence[int]]) -> None:
        """Children of every node that grows, the best first."""
        self.level = []
        for node, values, tokens in zip(self.grown, log_q, places):
            for value, place in zip(values, tokens):
                child = len(self.places)
                self.places.append(place)
                self.parents.append(node)
                self.paths[child] = self.paths[node] + value
                self.level.append(child)

    def best(self, nodes: int, ids: Sequence[int]) -> TokenTree:
        """The most probable nodes; a parent is never less probable than its child and comes first."""
        order = sorted(range(len(self.places)), key=lambda node: (-self.paths[node], node))[:nodes]
        kept = sorted(order)
        place = {-1: -1} | {node: i for i, node in enumerate(kept)}
        return TokenTree(tuple(ids[self.places[node]] for node in kept), tuple(place[self.parents[node]] for node in kept))
