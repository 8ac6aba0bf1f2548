"""Lab 6, exercise 1: whether a guess is kept, and what is left for the correction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit, call
from kvedu.grading.fresh import Fresh

Answer = Callable[[int, Tensor, Tensor, float], Any]


def cases(fresh: Fresh) -> list[Case]:
    """Guesses the draft likes more than the target, less, equally; ones the target never says; u just below the ratio and just above."""

    def distribution(V: int) -> Tensor:
        return fresh.normal(V, dtype=torch.float64).softmax(-1)

    made = []
    p_V = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    q_V = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    for token, u in ((0, 0.99), (1, 0.5), (2, 0.14), (2, 0.15)):
        made.append(Case(f"the lab's p and q, guess {token}, u = {u}", (token, q_V, p_V, u)))
    for V in (5, 8):
        p_V, q_V = distribution(V), distribution(V)
        ratio = p_V / q_V
        worst, best = int(ratio.argmin()), int(ratio.argmax())
        for token, u, what in (
            (worst, 0.98 * float(ratio[worst]), "u just below p/q"),
            (worst, 1.02 * float(ratio[worst]), "u just above p/q"),
            (best, 0.999, "a guess that the target likes more than the draft did"),
        ):
            made.append(Case(f"V = {V}, {what}", (token, q_V, p_V, u)))
    p_V, q_V = distribution(6), distribution(6)
    p_V[2] = 0.0
    p_V /= p_V.sum()
    made.append(Case("a guess that the target never says, u = 0", (2, q_V, p_V, 0.0)))
    made.append(Case("draft equal to target", (3, q_V, q_V.clone(), 0.97)))
    return made


def observe(answer: Any, token: int, q_V: Tensor, p_V: Tensor, u: float) -> Any:
    """(kept, what is left); whatever is true counts as True."""
    pair = call(answer, token, q_V, p_V, u)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise Unfit("a pair was wanted: whether the guess is kept, and what is left (None where it is kept)")
    return bool(pair[0]), pair[1]


def residual(q_V: Tensor, p_V: Tensor) -> Tensor:
    """What p has beyond q, scaled to 1."""
    left_V = (p_V - q_V).clamp(min=0)
    return left_V / left_V.sum()


def rule(
    ratio: Callable[[float, float], float] = lambda p, q: p / q,
    left: Callable[[int, Tensor, Tensor], Tensor] = lambda token, q_V, p_V: residual(q_V, p_V),
    always: bool = False,
) -> Answer:
    """An answer with one part changed; unchanged it is right."""

    def answer(token: int, q_V: Tensor, p_V: Tensor, u: float) -> Any:
        kept = u < ratio(float(p_V[token]), float(q_V[token]))
        return kept, None if kept and not always else left(token, q_V, p_V)

    return answer


def without(token: int, q_V: Tensor, p_V: Tensor) -> Tensor:
    """p without the guess, scaled to 1: right for a guess that was looked up, not for one that was drawn."""
    left_V = p_V.clone()
    left_V[token] = 0
    return left_V / left_V.sum()


EXERCISE = Exercise(
    title="The acceptance rule",
    read="book/06-speculative-decoding",
    hint="Keep with probability p(x)/q(x): u is below it so often. Otherwise the tokens that the draft proposes too seldom have something to catch up on: p - q where that is positive.",
    checked="guesses the draft likes more or less than the target, ones that the target never says, u on both sides of p/q, and the distribution that is left",
    cases=cases,
    observe=observe,
    right=rule(),
    parts=("kept", "what is left"),
    tolerance=1e-6,
    mistakes=(
        Mistake(rule(ratio=lambda p, q: p), "the guess is kept with probability p(x), and q is left out: a guess comes with probability q already, so it is kept with p/q"),
        Mistake(rule(ratio=lambda p, q: q / p if p else float("inf")), "the ratio stands on its head: keep with probability p/q, so that what the draft says too often is thinned out"),
        Mistake(lambda token, q_V, p_V, u: (p_V[token] >= q_V[token], None if p_V[token] >= q_V[token] else residual(q_V, p_V)),
                "u is not used: guesses with p below q are never kept; they are kept with probability p/q"),
        Mistake(rule(left=lambda token, q_V, p_V: p_V), "the correction is drawn from p: then what was often proposed gets a second chance. Draw it from what p has beyond q"),
        Mistake(rule(left=lambda token, q_V, p_V: (p_V - q_V).clamp(min=0)), "what is left does not sum to 1: divide by its sum"),
        Mistake(rule(left=lambda token, q_V, p_V: (p_V - q_V).abs() / (p_V - q_V).abs().sum()),
                "the distance |p - q| is taken; tokens that the draft says too often get more again. Only where p is above q is anything left"),
        Mistake(rule(left=without), "the guess alone is taken out of p: right for a guess that was looked up, wrong for one that was drawn from q"),
        Mistake(rule(always=True), "what is left is returned for a guess that is kept too; there is nothing to correct then: None"),
    ),
)  # fmt: skip
