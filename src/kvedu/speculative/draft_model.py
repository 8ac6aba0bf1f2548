"""A smaller model that shares the tokenizer guesses a chain, token by token."""

from __future__ import annotations

from typing import Hashable, Sequence

from torch import Tensor

from kvedu.caches.contract import Cache
from kvedu.errors import CacheFull, RequestError
from kvedu.model.sampling import distribution
from kvedu.model.transformer import Transformer
from kvedu.speculative.draft_cache import DraftCache
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.tree import TokenTree


def guess(ask: Ask, logits_V: Tensor, path: Sequence[int]) -> tuple[int, Tensor | None]:
    """A token after the text and ``path``, and what it was drawn from; None where greedy chose it."""
    if ask.sampling.greedy and ask.sampling.repetition_penalty == 1:
        return int(logits_V.argmax()), None
    q_V = distribution(logits_V, ask.sampling, [*ask.ids, *path])
    return ask.draws.pick(q_V), q_V


class DraftModel(Proposer):
    """Guess ``k`` tokens by k passes of ``model``, all texts in each pass; drawn under each request's own settings.

    ``cache`` is the draft's own (None: one that grows). Where the draft has no position or no room left, it guesses
    fewer tokens, or none: the target then goes on alone. Any model will do that passes ``check``: a small one of the
    target's family, or the target's own ``first_layers``.
    Leviathan et al. 2023 (2211.17192); Chen et al. 2023 (2302.01318).

    Raises ``RequestError`` for k below 1 or a cache that cannot forget.
    """

    def __init__(self, model: Transformer, k: int = 4, cache: Cache | None = None) -> None:
        if k < 1:
            raise RequestError(f"k counts guesses and must be 1 or more, not {k}")
        self.k, self.draft = k, DraftCache(model, cache)

    def check(self, target: Transformer) -> None:
        self.draft.check(target)

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        depths = [self.draft.room(ask.key, ask.ids, min(ask.limit, self.k)) for ask in asks]
        tokens: list[list[int]] = [[] for _ in asks]
        q: list[dict[int, Tensor]] = [{} for _ in asks]
        alive = [i for i, depth in enumerate(depths) if depth > 0]
        new = {asks[i].key: self.draft.align(asks[i].key, asks[i].ids) for i in alive}
        while alive and (logits := self._run(new)):
            for i, logits_1V in zip(alive, logits):
                token, q_V = guess(asks[i], logits_1V[0], tokens[i])
                if q_V is not None:
                    q[i][len(tokens[i]) - 1] = q_V
                tokens[i].append(token)
            alive = [i for i in alive if len(tokens[i]) < depths[i]]
            new = {asks[i].key: tokens[i][-1:] for i in alive}
        return [TokenTree(tuple(t), tuple(range(-1, len(t) - 1)), drawn) for t, drawn in zip(tokens, q)]

    def _run(self, new: dict[Hashable, Sequence[int]]) -> list[Tensor] | None:
        """One pass, or None where the texts together have outgrown the draft's cache: what is guessed so far must do."""
        try:
            return self.draft.run(new)
        except CacheFull:
            return None

    def release(self, key: Hashable) -> None:
        self.draft.release(key)
