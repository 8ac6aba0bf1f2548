"""Recall of facts that stand in the context: what a rewrite costs in looking things up."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from os.path import commonprefix
from typing import Iterable, Protocol

import torch
from torch.nn.functional import cross_entropy

from kvedu.caches.concat import ConcatCache
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer

ALIKE = 16
"""Neighboring prompts that have this many first tokens in common are asked together."""


class Question(Protocol):
    """What ``kvedu.texts.RecallItem`` is: a prompt and the answer that should follow it after a space."""

    @property
    def prompt(self) -> str: ...

    @property
    def answer(self) -> str: ...


@dataclass(frozen=True)
class Answer:
    """Whether greedy decoding would give the answer, and its negative log-likelihood in nats."""

    right: bool
    loss: float


@torch.inference_mode()
def score_answers(model: Transformer, items: Iterable[Question]) -> list[Answer]:
    """Ask each question once, with the right answer behind it: one ragged step for questions that share a context.

    An answer is right if each of its tokens is the most likely one after the prompt and the answer's
    earlier tokens, which is when greedy decoding would produce it. Neighboring questions that begin alike
    are asked together: what they share runs once, and each goes on from a fork of it. Cost: about one
    forward pass over each distinct context. Raises ``RequestError`` for a model without a tokenizer, or an
    empty prompt or answer.
    """
    if model.tokenizer is None:
        raise RequestError("recall is asked in text, and this model has no tokenizer; set model.tokenizer")
    encode = model.tokenizer.encode
    texts = [(encode(item.prompt), encode(f" {item.answer}")) for item in items]
    if any(not prompt or not answer for prompt, answer in texts):
        raise RequestError("a question without a prompt or an answer cannot be scored")
    groups = groupby(texts, key=lambda text: text[0][:ALIKE])
    return [answer for _, group in groups for answer in _score_group(model, list(group))]


def recall_accuracy(model: Transformer, items: Iterable[Question]) -> float:
    """Share of questions whose answer greedy decoding gives exactly; see ``score_answers``."""
    answers = score_answers(model, items)
    if not answers:
        raise RequestError("no questions: an accuracy of nothing is not 0")
    return sum(answer.right for answer in answers) / len(answers)


def _score_group(model: Transformer, group: list[tuple[list[int], list[int]]]) -> list[Answer]:
    """Score prompts and answers that begin alike; correct, if slower, for any others."""
    shared = commonprefix([prompt[:-1] for prompt, _ in group])
    cache = ConcatCache(model.config, dtype=model.dtype, device=model.device)
    trunk = cache.add()
    if shared:
        with cache.step({trunk: len(shared)}) as view:
            model.hidden(torch.tensor(shared, device=model.device), view)
    fed = {cache.fork(trunk): [*prompt[len(shared) :], *answer[:-1]] for prompt, answer in group}
    ids_N = torch.tensor([i for ids in fed.values() for i in ids], device=model.device)
    with cache.step({seq: len(ids) for seq, ids in fed.items()}) as view:
        spans = [range(row.rows.stop - len(answer), row.rows.stop) for row, (_, answer) in zip(view.rows, group)]
        logits_RV = model(ids_N, view, torch.tensor([i for span in spans for i in span], device=model.device))
    answers = []
    for logits_TV, (_, answer) in zip(logits_RV.to(torch.float32).split([len(span) for span in spans]), group):
        wanted_T = torch.tensor(answer, device=model.device)
        loss = cross_entropy(logits_TV, wanted_T, reduction="sum").item()
        answers.append(Answer(bool((logits_TV.argmax(-1) == wanted_T).all()), loss))
    return answers
