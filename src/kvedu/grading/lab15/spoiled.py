"""Lab 15, exercise 6: one KV head's cached rows replaced by their mean, and nothing else touched."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """First head, last head, one in the middle; a square of tokens and heads, where a wrong axis gives the right shape."""
    shapes = [(7, 3, 4, 0), (7, 3, 4, 2), (4, 4, 4, 1), (fresh.integer(5, 20), 2, 8, 1)]
    return [Case(f"S={S}, K={K}, D={D}, head {head}", (fresh.normal(S, K, D) + fresh.normal(1, K, D), head)) for S, K, D, head in shapes]


def right(x_SKD: Tensor, head: int) -> Tensor:
    """A copy in which one head's rows are their mean."""
    out = x_SKD.clone()
    out[:, head] = x_SKD[:, head].mean(dim=0)
    return out


def with_rows(x_SKD: Tensor, head: int, rows: Tensor) -> Tensor:
    """A copy with other rows in one head."""
    out = x_SKD.clone()
    out[:, head] = rows
    return out


EXERCISE = Exercise(
    title="Spoil one head",
    read="book/15-sinks-rope-qk-ov",
    hint="Copy first. Then `copy[:, head]` is [S, D]; its mean over the tokens is [D], and is written to every row.",
    checked="one head's rows replaced by their mean over tokens, the other heads and the cache's own tensor as they were",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda x, head: x.mean(dim=0, keepdim=True).expand_as(x).clone(), "all heads are spoiled; only one should be"),
        Mistake(lambda x, head: with_rows(x, head, torch.zeros(())), "the rows are zero. A zero is shorter than any value the model has seen; the mean keeps what all tokens have in common and takes away only which one it was"),
        Mistake(lambda x, head: with_rows(x, head, x[:, head].mean(dim=1, keepdim=True)), "the mean is taken over the D dimensions of each token; it should be over the tokens"),
        Mistake(lambda x, head: with_rows(x, head, x.mean(dim=(0, 1))), "the mean is taken over all heads too; take it over this head's rows"),
        Mistake(lambda x, head: with_rows(x, head, x[:, head].mean()), "the mean is one number for all; one for each of the D dimensions is wanted"),
    ),
)  # fmt: skip
