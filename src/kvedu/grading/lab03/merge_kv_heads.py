"""Lab 3, exercise 3: the KV heads of a projection matrix merged into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """SmolLM2's own heads, and others: a head size that is not a multiple of K, one KV head, as many as queries."""
    shapes = [(9, 3, 64, 96), (8, 2, 10, 24), (4, 4, 6, 16), (6, 1, 8, 16), (2 * (K := fresh.integer(3, 7)), K, 9, 20)]
    return [Case(f"H={H}, K={K}, D={D}, M={M}", (fresh.normal((H + 2 * K) * D, M), H, K, D)) for H, K, D, M in shapes]


def merged(pool: Callable[[Tensor, int, int], Tensor], order: tuple[int, ...] = (1, 2), queries: float = 1.0) -> Any:
    """An answer with another way to pool, another order or other queries."""

    def answer(qkv_OM: Tensor, H: int, K: int, D: int) -> Tensor:
        parts = qkv_OM.split([H * D, K * D, K * D])
        return torch.cat([parts[0] * queries, *[pool(parts[i], K, D) for i in order]])

    return answer


def mean(x_OM: Tensor, K: int, D: int) -> Tensor:
    """The mean over heads; heads are blocks of D rows."""
    return x_OM.view(K, D, -1).mean(dim=0)


EXERCISE = Exercise(
    title="Merge the heads of a layer",
    read="book/03-mha-mqa-gqa",
    hint="split() takes the matrix apart; view(K, D, -1) makes heads an axis. Row d of the new head is the mean over heads of their row d.",
    checked="queries kept, keys and values the mean of their heads, in that order, for five shapes of random matrices",
    cases=cases,
    right=merged(mean),
    mistakes=(
        Mistake(merged(lambda x, K, D: x.view(D, K, -1).mean(dim=1)), "the mean is taken of neighboring rows; heads are blocks of D rows, so the axis of heads comes first"),
        Mistake(merged(lambda x, K, D: x.view(K, D, -1).sum(dim=0)), "the heads are summed; the mean was wanted"),
        Mistake(merged(lambda x, K, D: x[:D]), "the first head is kept and the others are dropped; the mean was wanted"),
        Mistake(merged(mean, order=(2, 1)), "the keys stand where the values belong: queries, keys, values is the order"),
        Mistake(merged(lambda x, K, D: mean(x, K, D).repeat(K, 1)), "the merged head is written K times; one head of keys and one of values was wanted"),
        Mistake(lambda qkv_OM, H, K, D: qkv_OM.clone(), "nothing is merged: as many rows come back as went in"),
    ),
)
