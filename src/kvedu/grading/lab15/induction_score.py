"""Lab 15, exercise 4: how much each head looks at what came after the same token the last time."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Maps as a causal softmax makes them, with much of it on token 0, as real ones have; some heads that are built to score."""
    made = []
    for H, P in ((3, 4), (2, 7), (9, fresh.integer(8, 14)), (1, 2)):
        scores = fresh.normal(H, 2 * P, 2 * P) * 2
        scores[..., 0] += 2
        t = torch.arange(P, 2 * P)
        scores[0, t, t - P + 1] += 3
        later = torch.ones(2 * P, 2 * P, dtype=torch.bool).triu(1)
        made.append(Case(f"{H} heads, P={P}", (scores.masked_fill(later, -torch.inf).softmax(-1), P)))
    return made


def looking(back: int, start: int = 0) -> object:
    """An answer that looks P + ``back`` tokens back, from query P + ``start`` on."""

    def answer(weights_HTS: Tensor, P: int) -> Tensor:
        t = torch.arange(P + start, 2 * P)
        return weights_HTS[:, t, (t - P - back).clamp(min=0)].mean(-1)

    return answer


EXERCISE = Exercise(
    title="Find the head that repeats",
    read="book/15-sinks-rope-qk-ov",
    hint="Query t of the second half stands on a token that came first at t - P. Where does the token stand that came after that one? Weights [H, t, there], mean over t.",
    checked="the mean weight of every head on the token after the last occurrence, over the queries of the second half and no others",
    cases=cases,
    right=looking(-1),
    mistakes=(
        Mistake(looking(0), "that is the same token one period earlier; an induction head looks at what came *after* it"),
        Mistake(looking(1), "that is the token *before* the last occurrence; the one after it is wanted"),
        Mistake(looking(-1, start=-1), "query P - 1 is in it: it is the last of the first half, nothing has come twice, and where it would look is token 0, the sink"),
        Mistake(lambda w, P: w[:, torch.arange(P, 2 * P), torch.arange(1, P + 1)].sum(-1), "the weights are summed; the mean over the queries is wanted"),
        Mistake(lambda w, P: w[:, torch.arange(P, 2 * P), torch.arange(1, P + 1)].mean(), "one number for all heads comes out; one for each is wanted"),
    ),
)  # fmt: skip
