"""Lab 13, exercise 2: attention drawn, by a measure that is fair to late tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Causal weights of square and of later queries."""
    made = []
    for Q, S, K in ((6, 6, 2), (4, 9, 3), (1, 5, 1), (8, 8, 1)):
        scores = fresh.normal(Q, S, K)
        hidden = torch.arange(S) > torch.arange(S - Q, S)[:, None]
        made.append(Case(f"the last {Q} queries of {S} tokens, K={K}", (scores.masked_fill(hidden[:, :, None], -torch.inf).softmax(1),)))
    return made


def right(weights_QSK: Tensor) -> Tensor:
    """The sum over the number of queries that could see the token."""
    Q, S, _ = weights_QSK.shape
    could_S = torch.clamp(S - torch.arange(S), max=Q)
    return weights_QSK.sum(0) / could_S[:, None]


def _positive(weights_QSK: Tensor) -> Tensor:
    return weights_QSK.sum(0) / (weights_QSK > 0.1).sum(0).clamp(min=1)


EXERCISE = Exercise(
    title="Heavy hitters, fairly",
    read="book/13-choosing-a-strategy",
    hint="Of the last Q queries of S tokens, token s could be seen by min(Q, S - s). Divide the sum by that.",
    checked="causal weights of one query, of the last few and of all",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda w: w.sum(0), "the sum favors old tokens, which more queries could see; divide by how many could"),
        Mistake(lambda w: w.mean(0), "it is divided by all queries, also by those from before the token; that is the sum again, on another scale"),
        Mistake(lambda w: w[-1], "only the last query is asked"),
        Mistake(lambda w: w.amax(0), "the largest weight is taken; the mean over the queries that could see the token is wanted"),
        Mistake(lambda w: w.sum(0) / (len(w) - torch.arange(w.shape[1]).clamp(max=len(w) - 1))[:, None],
                "the queries are counted as if there were one for each token from the first on; the last Q of S tokens ask"),
    ),
)  # fmt: skip
