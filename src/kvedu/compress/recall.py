"""Recall of facts that stand in the context: what a rewrite costs in looking things up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Protocol

import torch
from torch.nn.functional import cross_entropy

from kvedu.caches.none import NoCache
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer


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
def score_answers(model: Transformer, items: Iterable[Question], batch: int = 8) -> list[Answer]:
    """Ask each question once: prompt and right answer run together, several items in one ragged step.

    An answer is right if each of its tokens is the most likely one after the prompt and the answer's
    earlier tokens, which is when greedy decoding would produce it. Cost: one forward pass over all
    prompts and answers. Raises ``RequestError`` for a model without a tokenizer or an empty answer.
    """
    if model.tokenizer is None:
        raise RequestError("recall is asked in text, and this model has no tokenizer; set model.tokenizer")
    texts = [(model.tokenizer.encode(item.prompt), model.tokenizer.encode(f" {item.answer}")) for item in items]
    if any(not prompt or not answer for prompt, answer in texts):
        raise RequestError("a question without a prompt or an answer cannot be scored")
    answers: list[Answer] = []
    for first in range(0, len(texts), batch):
        answers += _score_batch(model, texts[first : first + batch])
    return answers


def recall_accuracy(model: Transformer, items: Iterable[Question], batch: int = 8) -> float:
    """Share of questions whose answer greedy decoding gives exactly; see ``score_answers``."""
    answers = score_answers(model, items, batch)
    if not answers:
        raise RequestError("no questions: an accuracy of nothing is not 0")
    return sum(answer.right for answer in answers) / len(answers)


def _score_batch(model: Transformer, texts: list[tuple[list[int], list[int]]]) -> list[Answer]:
    cache = NoCache(model.config, dtype=model.dtype, device=model.device)
    fed = {cache.add(): [*prompt, *answer[:-1]] for prompt, answer in texts}
    ids_N = torch.tensor([i for ids in fed.values() for i in ids], device=model.device)
    with cache.step({seq: len(ids) for seq, ids in fed.items()}) as view:
        spans = [(row.first + row.count - len(answer), row.first + row.count) for row, (_, answer) in zip(view.rows, texts)]
        rows = torch.tensor([i for span in spans for i in range(*span)], device=model.device)
        logits_RV = model(ids_N, view, rows).to(torch.float32)
    answers, at = [], 0
    for _, answer in texts:
        logits_TV, wanted_T = logits_RV[at : at + len(answer)], torch.tensor(answer, device=model.device)
        at += len(answer)
        loss = cross_entropy(logits_TV, wanted_T, reduction="sum").item()
        answers.append(Answer(bool((logits_TV.argmax(-1) == wanted_T).all()), loss))
    return answers
