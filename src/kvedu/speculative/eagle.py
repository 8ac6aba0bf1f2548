"""EAGLE: guess a chain with a head that reads the target's own features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Hashable, Sequence

import torch
from torch import Tensor

from kvedu.caches.concat import ConcatCache
from kvedu.caches.contract import Cache
from kvedu.errors import CacheFull, RequestError
from kvedu.model.transformer import Transformer
from kvedu.speculative.eagle_head import EagleHead
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.reduced_head import ReducedHead, chooses
from kvedu.speculative.tree import EMPTY, TokenTree
from kvedu.speculative.vocabulary import DraftVocabulary


@dataclass
class Text:
    """What a head holds of one text. Pair i is (feature of token i, token i + 1).

    Pairs ``base`` .. ``base + held - 1`` are in the cache, all of them true; ``waiting`` are features of those that
    come next. ``last_M`` is the head's output at the last true pair: what the first guess is made from.
    """

    seq: int
    base: int
    held: int = 0
    waiting: list[Tensor] = field(default_factory=list)
    last_M: Tensor | None = None

    @property
    def next(self) -> int:
        """Number of the text's token whose feature comes next."""
        return self.base + self.held + sum(map(len, self.waiting))


class Eagle(Proposer):
    """Guess ``k`` tokens, one pass of ``head`` for each, all texts in each pass.

    A round begins by running what was verified: the target's features of the kept tokens, each paired with the token that
    follows. Guesses go on from the head's own feature, and are forgotten when they are made, so that nothing
    approximate stays behind (C086) and no rollback is needed. A greedy request gets the best tokens, others are drawn
    under their own settings, among the ``vocabulary``'s tokens in either case. A greedy chain ends early, after a guess
    of less than ``sure`` probability: what follows a guess that is likely wrong is seldom kept (a drawn one must go on: see
    ``Proposer``).
    ``cache`` holds the head's one layer (None: one that grows). What happens at a gap in the features: see ``feed``.

    EAGLE (2401.15077): one tap. EAGLE-3 (2503.01840): several. Cost of a guess for SmolLM2: 9 M weights against 135 M.
    Raises ``RequestError`` for k below 1, ``sure`` outside [0, 1), a cache that cannot forget, or a head or vocabulary made for another target.
    """

    def __init__(
        self,
        head: EagleHead,
        vocabulary: DraftVocabulary,
        target: Transformer,
        k: int = 3,
        cache: Cache | None = None,
        sure: float = 0.0,
    ) -> None:
        if k < 1:
            raise RequestError(f"k counts guesses and must be 1 or more, not {k}")
        if not 0 <= sure < 1:
            raise RequestError(f"sure is a probability from 0 to below 1, not {sure}")
        self.sure = sure
        self.head, self.k, self.deepest = head, k, k
        head.shape.check(target)
        self.reduced = ReducedHead(vocabulary, target)
        if head.shape.R != len(vocabulary):
            raise RequestError(f"the head was trained to guess {head.shape.R} tokens, the vocabulary has {len(vocabulary)}")
        layer = head.shape.layer
        self.cache = ConcatCache(layer, dtype=target.dtype, device=target.device) if cache is None else cache
        if reason := self.cache.exceptions.get("keeps every token"):
            raise RequestError(f"{type(self.cache).__name__} cannot take back rejected tokens: {reason}; use another cache")
        self._texts: dict[Hashable, Text] = {}

    def check(self, target: Transformer) -> None:
        self.head.shape.check(target)
        self.reduced.check(target)

    def taps(self, target: Transformer) -> tuple[int, ...]:
        return self.head.shape.taps

    def feed(self, key: Hashable, start: int, features_TE: Tensor) -> None:
        """Take in features. After a gap the head begins afresh at ``start``: exact still, but for a while it guesses worse."""
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = Text(self.cache.add(), start)
        elif start > text.next:
            self.cache.truncate(text.seq, 0)
            text = self._texts[key] = Text(text.seq, start)
        new_TE = features_TE[text.next - start :]
        if len(new_TE):
            text.waiting.append(new_TE)

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        depths = [self._depth(ask) for ask in asks]
        alive = [i for i, depth in enumerate(depths) if depth > 0]
        if not alive or not self._catch_up([asks[i] for i in alive]):
            return [EMPTY] * len(asks)
        chains: list[list[int]] = [[] for _ in asks]
        drawn: list[list[Tensor]] = [[] for _ in asks]
        f_BM = torch.stack([self._texts[asks[i].key].last_M for i in alive])
        while True:
            logits_BR = self.reduced.logits(f_BM)
            for i, (token, q_V) in zip(alive, self.reduced.guesses([asks[i] for i in alive], logits_BR, [chains[i] for i in alive])):
                chains[i].append(token)
                if q_V is not None:
                    drawn[i].append(q_V)
            goes_on = self._goes_on([asks[i] for i in alive], logits_BR)
            rows = [row for row, i in enumerate(alive) if goes_on[row] and len(chains[i]) < depths[i]]
            alive = [alive[row] for row in rows]
            if not alive:
                break
            if len(rows) < len(f_BM):
                f_BM = f_BM[rows]
            moved = self._run({self._texts[asks[i].key].seq: chains[i][-1:] for i in alive}, f_BM)
            if moved is None:
                break
            f_BM = moved
        for ask in asks:
            self._forget_guesses(ask.key)
        return [TokenTree.chain(chain, q or None) for chain, q in zip(chains, drawn)]

    def _goes_on(self, asks: Sequence[Ask], logits_BR: Tensor) -> list[bool]:
        """Whether another guess is worth its pass: a greedy chain ends at one that the head gives less than ``sure``."""
        if not self.sure:
            return [True] * len(asks)
        best_B = torch.softmax(logits_BR.float(), dim=-1).amax(dim=-1).tolist()
        return [p >= self.sure or not chooses(ask) for ask, p in zip(asks, best_B)]

    def _depth(self, ask: Ask) -> int:
        """Guesses that can be made: 0 where the text's features are not all there, or no position or room is left."""
        text = self._texts.get(ask.key)
        if text is None or text.next != len(ask.ids) - 1 or (not text.waiting and text.last_M is None):
            return 0
        config = self.head.shape.config
        longest = min(config.max_positions, config.rope.switch_length or config.max_positions)
        depth = min(self.k, ask.limit, longest - len(ask.ids) + 1)
        room, new = self.cache.room(text.seq), sum(map(len, text.waiting))
        return depth if room is None else min(depth, room - new + 1)

    def _catch_up(self, asks: Sequence[Ask]) -> bool:
        """Run the pairs that are true by now, of all texts in one pass; False where the cache is full."""
        late = [(ask, text) for ask in asks if (text := self._texts[ask.key]).waiting]
        if not late:
            return True
        features_NE = torch.cat([rows for _, text in late for rows in text.waiting])
        tokens = {text.seq: ask.ids[text.base + text.held + 1 :] for ask, text in late}
        f_NM = self._run(tokens, self.head.feature(features_NE))
        if f_NM is None:
            return False
        end = 0
        for _, text in late:
            new = sum(map(len, text.waiting))
            end += new
            text.held, text.waiting, text.last_M = text.held + new, [], f_NM[end - 1]
        return True

    def _run(self, tokens: dict[int, Sequence[int]], f_NM: Tensor) -> Tensor | None:
        """One pass over pairs of several sequences; None where together they have outgrown the cache."""
        ids = torch.tensor([i for some in tokens.values() for i in some], device=f_NM.device)
        try:
            with self.cache.step({seq: len(some) for seq, some in tokens.items()}) as view:
                return self.head.step(self.reduced.embed(ids), f_NM, view)
        except CacheFull:
            return None

    def _forget_guesses(self, key: Hashable) -> None:
        text = self._texts.get(key)
        if text is not None and self.cache.length(text.seq) > text.held:
            self.cache.truncate(text.seq, text.held)

    def held(self, key: Hashable) -> int:
        """True pairs in the head's cache for a text; 0 for an unknown one."""
        return self._texts[key].held if key in self._texts else 0

    def release(self, key: Hashable) -> None:
        if key in self._texts:
            self.cache.free(self._texts.pop(key).seq)
