"""All tasks at one length of context, easy ones beside hard ones: an easy task hides what a hard one shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Mapping

from kvedu.compress.evaluate.copying import copied, random_tokens
from kvedu.compress.evaluate.feed import MakeCache
from kvedu.compress.evaluate.haystack import haystack
from kvedu.compress.evaluate.needles import keys_quizzes, needle_quizzes
from kvedu.compress.evaluate.predict import predictions
from kvedu.compress.evaluate.quiz import Quiz, accuracy, answer
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer

ORDINARY = 1000
"""Random tokens are drawn from this id up: below it stand special tokens and single bytes."""


@dataclass(frozen=True)
class Battery:
    """Texts and questions whose contexts are ``length`` tokens long, so that a budget of length / 2 is half of each.

    ``prose`` is read for its perplexity (length + tail tokens, of which the last ones meet a full budget), ``needles`` and
    ``keys`` are asked, ``natural`` and ``random`` come twice and are copied.
    """

    length: int
    prose: tuple[int, ...]
    needles: tuple[Quiz, ...]
    keys: tuple[Quiz, ...]
    natural: tuple[tuple[int, ...], ...]
    random: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Damage:
    """What one cache does to a battery. Perplexity and KL: lower is better; the others are shares of right answers."""

    perplexity: float
    kl: float
    copy: float
    induction: float
    needle: float
    keys: float


def battery(model: Transformer, length: int = 512, *, n: int = 2, copies: int = 1, seed: int = 0) -> Battery:
    """A battery for a model's tokenizer and vocabulary: ``n`` needles at each of five depths, ``n`` quizzes of 8 keys in 16."""
    if model.tokenizer is None:
        raise RequestError("a battery is made of text, and this model has no tokenizer; set model.tokenizer")
    encode = model.tokenizer.encode
    return Battery(
        length,
        haystack(encode, length + length // 2, seed=seed),
        tuple(needle_quizzes(encode, (length,), n=n, seed=seed)),
        tuple(keys_quizzes(encode, n=n, length=length, seed=seed)),
        tuple(haystack(encode, length, seed=seed + 1 + i) for i in range(copies)),
        tuple(tuple(random_tokens(model.config.V, length, lowest=ORDINARY, seed=seed + i)) for i in range(copies)),
    )


def damages(
    model: Transformer, tasks: Battery, makes: Mapping[str, MakeCache], *, chunk: int | None = 16, aware: bool = False
) -> Iterator[tuple[str, Damage]]:
    """Name and damage of one cache after the other, each when it is done. Put the full cache among them.

    ``chunk``: prose and second copies come so many tokens at a time, contexts in one step.
    """
    for name, make in makes.items():
        prose = predictions(model, tasks.prose, {name: make}, chunk=chunk)[name]
        yield (
            name,
            Damage(
                prose.perplexity,
                prose.kl,
                copied(model, tasks.natural, make, chunk=chunk).accuracy,
                copied(model, tasks.random, make, chunk=chunk).accuracy,
                accuracy(answer(model, tasks.needles, make, aware=aware)),
                accuracy(answer(model, tasks.keys, make, aware=aware)),
            ),
        )
