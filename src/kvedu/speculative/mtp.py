"""MTP-style drafting: a chain of guesses, the next module for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Hashable, Sequence

import torch
from torch import Tensor

from kvedu.caches.concat import ConcatCache
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer
from kvedu.speculative.mtp_heads import MtpHeads
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.reduced_head import ReducedHead
from kvedu.speculative.tree import TokenTree
from kvedu.speculative.vocabulary import DraftVocabulary


@dataclass
class _Text:
    """One text of n tokens: its sequence in each module's cache, true pairs held there, and true features that come next.

    Module d pairs feature d of token i with token i + d + 1, which is known for i up to n - 2 - d. ``base`` is the first
    token whose feature came.
    """

    seqs: list[int]
    base: int
    held: list[int]
    waiting: list[list[Tensor]]

    @property
    def next(self) -> int:
        """Number of the text's token whose feature comes next."""
        return self.base + self.held[0] + sum(map(len, self.waiting[0]))


class Mtp(Proposer):
    """Guess a token with each of ``heads``' modules in turn, all texts in each pass.

    Module d runs the pairs that became true since the last round and, last, the one whose token is the guess of the module
    before; that one is forgotten again. Pairs that are true are run once each. Raises ``RequestError`` for heads or a
    vocabulary made for another target.
    """

    def __init__(self, heads: MtpHeads, vocabulary: DraftVocabulary, target: Transformer) -> None:
        heads.shape.check(target)
        self.heads = heads
        self.k = self.deepest = len(heads.steps)
        self.reduced = ReducedHead(vocabulary, target)
        if heads.shape.R != len(vocabulary):
            raise RequestError(f"the heads were trained to guess {heads.shape.R} tokens, the vocabulary has {len(vocabulary)}")
        self.caches = [ConcatCache(heads.shape.layer, dtype=target.dtype, device=target.device) for _ in heads.steps]
        self._texts: dict[Hashable, _Text] = {}

    def check(self, target: Transformer) -> None:
        self.heads.shape.check(target)
        self.reduced.check(target)

    def taps(self, target: Transformer) -> tuple[int, ...]:
        return self.heads.shape.taps

    def feed(self, key: Hashable, start: int, features_TE: Tensor) -> None:
        """Take in features; after a gap all modules begin afresh at ``start``."""
        text = self._texts.get(key)
        if text is None or start > text.next:
            self.release(key)
            text = _Text([cache.add() for cache in self.caches], start, [0] * self.k, [[] for _ in self.caches])
            self._texts[key] = text
        new_TE = features_TE[text.next - start :]
        if len(new_TE):
            text.waiting[0].append(self.heads.norm(new_TE.contiguous()))

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        depths = [self._depth(ask) for ask in asks]
        chains: list[list[int]] = [[] for _ in asks]
        drawn: list[list[Tensor]] = [[] for _ in asks]
        guessed: list[Tensor | None] = [None] * len(asks)  # features that rest on guesses
        for d in range(self.k):
            alive = [i for i, depth in enumerate(depths) if depth > d]
            outputs = self._run(d, [asks[i] for i in alive], [chains[i] for i in alive], [guessed[i] for i in alive])
            if not outputs:
                break
            for i, out_TM in zip(alive, outputs):
                guessed[i] = self._keep(d, asks[i], out_TM)
            logits_BR = self.reduced.logits(torch.stack([out_TM[-1] for out_TM in outputs]))
            found = self.reduced.guesses([asks[i] for i in alive], logits_BR, [chains[i] for i in alive])
            for i, (token, q_V) in zip(alive, found):
                chains[i].append(token)
                if q_V is not None:
                    drawn[i].append(q_V)
        return [TokenTree.chain(chain, q or None) for chain, q in zip(chains, drawn)]

    def _depth(self, ask: Ask) -> int:
        """Guesses that can be made: a module needs d + 1 tokens after the first feature, and a position for each pair."""
        text, n, config = self._texts.get(ask.key), len(ask.ids), self.heads.shape.config
        if text is None or text.next != n - 1 or not text.waiting[0]:
            return 0
        longest = min(config.max_positions, config.rope.switch_length or config.max_positions)
        return min(self.k, ask.limit) if n - text.base - 1 <= longest else 0

    def _run(
        self, d: int, asks: Sequence[Ask], chains: Sequence[Sequence[int]], guessed: Sequence[Tensor | None]
    ) -> list[Tensor]:
        """Module d over all pairs that it lacks, up to token n - 2 of each text; its outputs of each text."""
        tokens, inputs = {}, []
        for ask, chain, guessed_TM in zip(asks, chains, guessed):
            text = self._texts[ask.key]
            tokens[text.seqs[d]] = [*ask.ids, *chain][text.base + text.held[d] + d + 1 :]
            inputs += text.waiting[d] if guessed_TM is None else [*text.waiting[d], guessed_TM]
        if not tokens:
            return []
        f_NM = torch.cat(inputs)
        ids = torch.tensor([i for some in tokens.values() for i in some], device=f_NM.device)
        with self.caches[d].step({seq: len(some) for seq, some in tokens.items()}) as view:
            out_NM = self.heads.steps[d](self.reduced.embed(ids), f_NM, view)
        return list(out_NM.split([len(some) for some in tokens.values()]))

    def _keep(self, d: int, ask: Ask, out_TM: Tensor) -> Tensor:
        """Keep of module d what rests on true tokens, hand that to the next module for good; return what rests on guesses."""
        text = self._texts[ask.key]
        true = max(len(ask.ids) - 1 - d - text.base - text.held[d], 0)
        text.held[d] += true
        left = [rows for rows in (torch.cat(text.waiting[d])[true:],) if len(rows)] if text.waiting[d] else []
        text.waiting[d] = left
        self.caches[d].truncate(text.seqs[d], text.held[d])
        if d + 1 < self.k and true:
            text.waiting[d + 1].append(out_TM[:true])
        return out_TM[true:]

    def release(self, key: Hashable) -> None:
        if key in self._texts:
            for cache, seq in zip(self.caches, self._texts.pop(key).seqs):
                cache.free(seq)
