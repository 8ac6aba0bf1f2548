"""Lab 6, exercise 2: the distribution of what one place of a round emits; the proof in a line of code."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """The right rule and wrong ones, for small vocabularies; a draft equal to the target, and one that never says what it says."""

    def distribution(V: int) -> Tensor:
        return fresh.normal(V, dtype=torch.float64).softmax(-1)

    made = []
    for V in (3, 5, 8):
        p_V, q_V = distribution(V), distribution(V)
        left_V = (p_V - q_V).clamp(min=0)
        keep_V = (p_V / q_V).clamp(max=1)
        made.append(Case(f"V = {V}, the right rule", (q_V, keep_V, left_V / left_V.sum())))
        made.append(Case(f"V = {V}, the correction from p", (q_V, keep_V, p_V)))
        made.append(Case(f"V = {V}, any keep and any rest", (q_V, distribution(V), distribution(V))))
    q_V = distribution(4)
    made.append(Case("everything is kept", (q_V, torch.ones(4, dtype=torch.float64), distribution(4))))
    made.append(Case("nothing is kept", (q_V, torch.zeros(4, dtype=torch.float64), distribution(4))))
    return made


def right(q_V: Tensor, keep_V: Tensor, rest_V: Tensor) -> Tensor:
    """Guessed and kept, or rejected and corrected."""
    kept_V = q_V * keep_V
    return kept_V + (1 - kept_V.sum()) * rest_V


def _scaled(x_V: Tensor) -> Tensor:
    return x_V / x_V.sum()


EXERCISE = Exercise(
    title="What comes out",
    read="book/06-speculative-decoding",
    hint="A token comes out in two ways. How likely is it to be guessed *and* kept? How likely is a rejection at all, whatever was guessed, and then this token?",
    checked="right and wrong rules, small vocabularies, everything kept and nothing kept",
    cases=cases,
    right=right,
    tolerance=1e-9,
    mistakes=(
        Mistake(lambda q_V, keep_V, rest_V: q_V * keep_V + rest_V, "the correction counts in full; it is drawn only when a guess was rejected: weight it with that probability"),
        Mistake(lambda q_V, keep_V, rest_V: q_V * keep_V + (1 - keep_V) * rest_V, "each token's correction is weighted with its own 1 - keep; a correction comes after the rejection of *any* guess: one number for all tokens"),
        Mistake(lambda q_V, keep_V, rest_V: q_V * keep_V + q_V * (1 - keep_V) * rest_V, "a correction is counted only where the same token was rejected; any rejected guess may be corrected to any token: sum the rejections first"),
        Mistake(lambda q_V, keep_V, rest_V: keep_V + (1 - keep_V.sum()) * rest_V, "keep is taken for the probability of coming out; the token must be guessed first, with probability q"),
        Mistake(lambda q_V, keep_V, rest_V: q_V * keep_V, "the second way is missing: a guess was rejected, and the correction is this token"),
        Mistake(lambda q_V, keep_V, rest_V: _scaled(q_V * keep_V), "what is kept is scaled up to 1; that is what comes out if one guesses again after a rejection. Here a correction is drawn"),
    ),
)
