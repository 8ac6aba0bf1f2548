"""The target's embedding and the frequent rows of its output head, which every learned head shares."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor, nn

from kvedu.errors import RequestError
from kvedu.model.layers import Linear
from kvedu.model.transformer import Transformer
from kvedu.speculative.proposer import Ask
from kvedu.speculative.vocabulary import DraftVocabulary


class ReducedHead:
    """R rows of the target's head, in its dtype, packed where the target is; and its embedding, shared.

    The full head of SmolLM2 is 57 MB in bf16, of every 8,192 tokens 9 MB: read once for each guess.
    Raises ``RequestError`` for a vocabulary that speaks of another number of ids than the target's.
    """

    def __init__(self, vocabulary: DraftVocabulary, target: Transformer) -> None:
        self.vocabulary, self.embed = vocabulary, target.embed
        self.check(target)
        self.rows = Linear(target.config.M, len(vocabulary))
        weight_RM = vocabulary.rows(target.head.plain_weight().detach()).clone()
        self.rows.weight = nn.Parameter(weight_RM, requires_grad=False)
        if target.head.packed is not None:
            self.rows.pack()

    def check(self, target: Transformer) -> None:
        """Refuse a target with other token ids. Raises ``RequestError`` with the numbers."""
        if self.vocabulary.V != target.config.V:
            raise RequestError(
                f"the draft's vocabulary is {len(self.vocabulary)} of {self.vocabulary.V} token ids, the target has "
                f"{target.config.V}; both must share one tokenizer"
            )

    def logits(self, f_NM: Tensor) -> Tensor:
        """Logits ``[N, R]`` of normed features ``[N, M]``."""
        return self.rows(f_NM)

    def guesses(
        self, asks: Sequence[Ask], logits_BR: Tensor, paths: Sequence[Sequence[int]]
    ) -> list[tuple[int, Tensor | None]]:
        """A token for each text, and what it was drawn from ``[V]``; None where greedy chose it. ``paths``: guesses so far."""
        best = logits_BR.argmax(dim=-1).tolist()
        found: list[tuple[int, Tensor | None]] = []
        for ask, logits_R, path, place in zip(asks, logits_BR, paths, best):
            if chooses(ask):
                found.append((self.vocabulary.ids[place], None))
            else:
                q_V = self.vocabulary.distribution(logits_R, ask.sampling, (*ask.ids, *path) if penalizes(ask) else ())
                found.append((ask.draws.pick(q_V), q_V))
        return found

    def siblings(self, ask: Ask, logits_R: Tensor, path: Sequence[int], width: int) -> tuple[list[int], Tensor | None]:
        """``width`` different tokens after a path, best first; or drawn without replacement, and from what."""
        if chooses(ask):
            return [self.vocabulary.ids[i] for i in torch.topk(logits_R, min(width, len(logits_R))).indices.tolist()], None
        q_V = self.vocabulary.distribution(logits_R, ask.sampling, (*ask.ids, *path) if penalizes(ask) else ())
        left_V, tokens = q_V.clone(), []
        for _ in range(min(width, int((q_V > 0).sum()))):
            tokens.append(ask.draws.pick(left_V))
            left_V[tokens[-1]] = 0
        return tokens, q_V


def penalizes(ask: Ask) -> bool:
    """Whether earlier tokens change what is drawn."""
    return ask.sampling.repetition_penalty != 1


def chooses(ask: Ask) -> bool:
    """Whether the best token is taken as it stands: a plain greedy request."""
    return ask.sampling.greedy and not penalizes(ask)
