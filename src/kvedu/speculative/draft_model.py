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
from kvedu.speculative.vocabulary import DraftVocabulary


def guess(
    ask: Ask, logits: Tensor, path: Sequence[int], vocabulary: DraftVocabulary | None = None
) -> tuple[int, Tensor | None]:
    """A token after the text and ``path``, and what it was drawn from ``[V]``; None where greedy chose it.

    ``logits`` are those of the ``vocabulary``'s tokens, or of all.
    """
    if ask.sampling.greedy and ask.sampling.repetition_penalty == 1:
        best = int(logits.argmax())
        return best if vocabulary is None else vocabulary.ids[best], None
    spread = distribution if vocabulary is None else vocabulary.distribution
    q_V = spread(logits, ask.sampling, [*ask.ids, *path])
    return ask.draws.pick(q_V), q_V


class DraftModel(Proposer):
    """Guess ``k`` tokens by k passes of ``model``, all texts in each pass; drawn under each request's own settings.

    ``cache`` is the draft's own (None: one that grows). Where the draft has no position or no room left, it guesses
    fewer tokens, or none: the target then goes on alone. Any model will do that passes ``check``: a small one of the
    target's family, or the target's own ``first_layers``. ``vocabulary``: what a draft with a reduced head
    (``reduce_head``) scores.
    Leviathan et al. 2023 (2211.17192); Chen et al. 2023 (2302.01318).

    A draft with fewer positions than the target is refused unless it is asked for (``shorter``): it would fall silent
    in a long text, and nothing but the clock would tell.

    Raises ``RequestError`` for k below 1, a cache that cannot forget, or a vocabulary of another size than the draft's head.
    """

    def __init__(
        self,
        model: Transformer,
        k: int = 4,
        cache: Cache | None = None,
        *,
        vocabulary: DraftVocabulary | None = None,
        shorter: bool = False,
    ) -> None:
        if k < 1:
            raise RequestError(f"k counts guesses and must be 1 or more, not {k}")
        scored, known = model.head.n_out, model.config.V if vocabulary is None else len(vocabulary)
        if scored != known or (vocabulary is not None and vocabulary.V != model.config.V):
            raise RequestError(
                f"the draft scores {scored} of {model.config.V} tokens; the vocabulary given names "
                f"{'all of them' if vocabulary is None else f'{known} of {vocabulary.V}'}"
            )
        self.vocabulary = vocabulary
        self.k, self.deepest, self.draft = k, k, DraftCache(model, cache, shorter=shorter)

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
                token, q_V = guess(asks[i], logits_1V[0], tokens[i], self.vocabulary)
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
