"""Lab 13, exercise 1: which tokens an evicting cache keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Budgets with and without sinks; scores that would keep the old ones, the new ones, or neither; a text that fits."""
    made = []
    for S, K, budget, sinks, recent in ((12, 2, 6, 2, 2), (20, 3, 7, 0, 1), (9, 1, 8, 1, 3), (30, 2, 10, 4, 5)):
        scores = fresh.normal(S, K)
        if sinks:
            scores[:sinks] -= 9.0  # a score that forgets what has to stay
        scores[-recent:] -= 9.0
        made.append(Case(f"S={S}, K={K}, budget {budget}, {sinks} sinks, {recent} recent", (scores, budget, sinks, recent)))
    return [*made, Case("a text shorter than the budget", (fresh.normal(5, 2), 8, 2, 2)), Case("nothing left to choose", (fresh.normal(9, 2), 5, 2, 3))]


def right(scores_SK: Tensor, budget: int, sinks: int, recent: int) -> Tensor:
    """Protect, take the best, put them in the text's order."""
    S = len(scores_SK)
    scores_SK = scores_SK.clone()
    scores_SK[:sinks] = scores_SK[max(0, S - recent) :] = torch.inf
    return scores_SK.topk(min(budget, S), dim=0).indices.sort(dim=0).values


def _beside(scores_SK: Tensor, budget: int, sinks: int, recent: int) -> Tensor:
    return right(scores_SK, budget + sinks + recent, sinks, recent)


def _unsorted(scores_SK: Tensor, budget: int, sinks: int, recent: int) -> Tensor:
    scores_SK = scores_SK.clone()
    scores_SK[:sinks] = scores_SK[max(0, len(scores_SK) - recent) :] = torch.inf
    return scores_SK.topk(min(budget, len(scores_SK)), dim=0).indices


def _one_choice(scores_SK: Tensor, budget: int, sinks: int, recent: int) -> Tensor:
    mean = scores_SK.mean(1, keepdim=True).expand_as(scores_SK)
    return right(mean, budget, sinks, recent)


EXERCISE = Exercise(
    title="Score, keep",
    read="book/13-choosing-a-strategy",
    hint="Give the protected rows a score that nothing can beat, take the best `min(budget, S)` rows of each column with topk, and sort their indices.",
    checked="budgets with and without sinks, texts that fit, scores that would let the protected tokens go",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda s, budget, sinks, recent: right(s, budget, 0, 0), "the first and the last tokens are kept whatever their score; here they compete"),
        Mistake(_beside, "the budget includes the tokens that are always kept; here they come on top"),
        Mistake(_unsorted, "the indices stand in the order of their scores; a cache keeps its tokens in the text's order"),
        Mistake(_one_choice, "all heads keep the same tokens; each KV head chooses for itself"),
        Mistake(lambda s, budget, sinks, recent: right(-s, budget, sinks, recent), "the lowest scores are kept, and the highest let go"),
    ),
)  # fmt: skip
