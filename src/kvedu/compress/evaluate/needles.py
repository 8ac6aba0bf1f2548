"""Needles in a haystack: one sentence with a code, at a depth of a context of some length, asked for at the end.

The wording was chosen by what a small model can do: SmolLM2-135M finds these needles in its full cache.
Always report the full cache's accuracy beside a smaller one's: what the model cannot do, no cache loses.
"""

from __future__ import annotations

import random
from typing import Sequence

from kvedu.compress.evaluate.haystack import Encode, haystack
from kvedu.compress.evaluate.quiz import Ask, Quiz
from kvedu.errors import RequestError

THINGS = (
    "harbor", "castle", "garden", "tower", "river", "market", "bridge", "forest", "window", "station", "library", "kitchen",
    "museum", "island", "temple", "factory", "school", "theater", "airport", "mountain", "village", "hospital", "palace", "stable",
    "cellar", "office", "chapel", "prison", "bakery", "tunnel", "valley", "orchard",
)  # fmt: skip
"""What has a code: common words, one token each in SmolLM2's vocabulary or two."""


def needle_quizzes(
    encode: Encode,
    lengths: Sequence[int] = (512, 1024),
    depths: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    n: int = 2,
    *,
    filler: Sequence[str] | None = None,
    seed: int = 0,
) -> list[Quiz]:
    """``n`` quizzes for each length and depth, of one question each: "The secret code of the tower is 4817."

    Thing, code and filler are drawn from the seed, anew for each quiz. ``encode`` turns text into ids; other
    arguments and errors as in ``haystack``.
    """
    quizzes = []
    for length in lengths:
        for depth in depths:
            for copy in range(n):
                draw = random.Random(f"{seed} {length} {depth} {copy}")
                thing, code = draw.choice(THINGS), _code(draw)
                context = haystack(encode, length, [(depth, fact(thing, code))], filler=filler, seed=draw.random())
                quizzes.append(Quiz(context, (ask(encode, thing, code),), depth))
    return quizzes


def keys_quizzes(
    encode: Encode, keys: int = 16, asked: int = 8, n: int = 1, *, length: int | None = None, filler: Sequence[str] | None = None, seed: int = 0
) -> list[Quiz]:
    """``n`` quizzes of ``keys`` things with a code each, evenly spread over the context, of which ``asked`` are asked for.

    All keys look alike, so a wrong one is easily taken for the right one. ``length`` None: nothing but the
    keys' sentences. Raises ``RequestError`` for more keys than there are things, or more questions than keys.
    """
    if not 1 <= asked <= keys <= len(THINGS):
        raise RequestError(f"{keys} keys, {asked} of them asked for: at most {len(THINGS)} keys, and 1 to {keys} questions")
    quizzes = []
    for copy in range(n):
        draw = random.Random(f"{seed} {keys} {copy}")
        things = draw.sample(THINGS, keys)
        codes = [_code(draw) for _ in things]
        facts = [(i / keys, fact(thing, code)) for i, (thing, code) in enumerate(zip(things, codes))]
        tokens = sum(len(encode(f" {text}")) for _, text in facts) if length is None else length
        context = haystack(encode, tokens, facts, filler=filler, seed=draw.random())
        chosen = sorted(draw.sample(range(keys), asked))
        quizzes.append(Quiz(context, tuple(ask(encode, things[i], codes[i]) for i in chosen)))
    return quizzes


def fact(thing: str, code: str) -> str:
    """The needle."""
    return f"The secret code of the {thing} is {code}."


def ask(encode: Encode, thing: str, code: str) -> Ask:
    """The question: a new paragraph with the needle's words up to the code."""
    return Ask(tuple(encode(f"\n\nThe secret code of the {thing} is")), tuple(encode(f" {code}")))


def _code(draw: random.Random) -> str:
    return str(draw.randint(1000, 9999))
