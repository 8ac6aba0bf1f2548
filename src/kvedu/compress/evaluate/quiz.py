"""Questions about a context that went through a cache: is the answer still there?

The context is read first and what the cache makes of it stays; then each question is asked on a fork of
it and answered token by token. So a policy that evicts does not know what will be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from kvedu.caches.contract import Cache
from kvedu.compress.evaluate.feed import MakeCache, checked, in_chunks, made, step
from kvedu.compress.recall import Answer
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer


class Ask(NamedTuple):
    """One question in token ids: what is said after the context, and what should come then."""

    cue: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True)
class Quiz:
    """A context and questions about it. ``length`` and ``depth`` say which cell of a grid it belongs to."""

    context: tuple[int, ...]
    asks: tuple[Ask, ...]
    depth: float = 0.0

    @property
    def length(self) -> int:
        """Tokens of the context."""
        return len(self.context)


@torch.inference_mode()
def answer(
    model: Transformer, quizzes: Iterable[Quiz], make: MakeCache, *, chunk: int | None = None, aware: bool = False
) -> list[list[Answer]]:
    """Every quiz's answers through one cache: right where greedy decoding would say just that, with the loss in nats.

    The context comes in one step, or ``chunk`` tokens at a time. ``aware`` brings each cue in the last step
    of its context, so that an evicting policy judges with the question in sight: an easier test, which a
    server can pass only if it evicts once per question. Cost: a forward pass over each context (``aware``: over
    each question's), then a step per answer token for all questions of a quiz together.
    """
    cache = made(model, make)
    return [_answer(model, cache, quiz, chunk, aware) for quiz in quizzes]


def accuracy(answers: Iterable[Iterable[Answer]]) -> float:
    """Share of right answers. Raises ``RequestError`` where nothing was asked."""
    right = [one.right for of_quiz in answers for one in of_quiz]
    if not right:
        raise RequestError("no questions: an accuracy of nothing is not 0")
    return sum(right) / len(right)


def _answer(model: Transformer, cache: Cache, quiz: Quiz, chunk: int | None, aware: bool) -> list[Answer]:
    context = checked(model, quiz.context)
    for ask in quiz.asks:
        checked(model, ask.cue), checked(model, ask.answer)
    if aware:
        seqs, last = [], []
        for ask in quiz.asks:
            seqs.append(cache.add())
            for hidden_NM in in_chunks(model, cache, seqs[-1], [*context, *ask.cue], chunk):
                pass
            last.append(hidden_NM[-1])
        hidden_QM = torch.stack(last)
    else:
        trunk = cache.add()
        for _ in in_chunks(model, cache, trunk, context, chunk):
            pass
        seqs = [cache.fork(trunk) for _ in quiz.asks]
        cache.free(trunk)
        hidden_NM = step(model, cache, {seq: ask.cue for seq, ask in zip(seqs, quiz.asks)})
        hidden_QM = hidden_NM[torch.tensor([len(ask.cue) for ask in quiz.asks]).cumsum(0) - 1]
    right, losses, open_ = [True] * len(seqs), [0.0] * len(seqs), list(range(len(seqs)))
    for place in range(max(len(ask.answer) for ask in quiz.asks)):
        logits_QV = model.logits(hidden_QM).to(torch.float32)
        wanted_Q = torch.tensor([quiz.asks[i].answer[place] for i in open_], device=model.device)
        for i, said, wanted, loss in zip(open_, logits_QV.argmax(-1), wanted_Q, cross_entropy(logits_QV, wanted_Q, reduction="none")):
            right[i] &= bool(said == wanted)
            losses[i] += loss.item()
        open_ = [i for i in open_ if place + 1 < len(quiz.asks[i].answer)]
        if open_:
            hidden_QM = step(model, cache, {seqs[i]: [quiz.asks[i].answer[place]] for i in open_})
    for seq in seqs:
        cache.free(seq)
    return [Answer(r, loss) for r, loss in zip(right, losses)]
