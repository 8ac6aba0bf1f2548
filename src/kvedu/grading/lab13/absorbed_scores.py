"""Lab 13, exercise 3: scores against latents, without making a key."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab13._counted import small, watched


def cases(fresh: Fresh) -> list[Case]:
    """More tokens than a latent is wide, so that keys would be the largest thing."""
    return [
        Case(f"S={S}, H={H}, D={D}, Z={Z}", (fresh.normal(H, D), fresh.normal(H, D, Z), fresh.normal(S, Z)))
        for S, H, D, Z in ((40, 3, 8, 12), (33, 4, 6, 10), (50, 2, 16, 16), (20, 2, 8, 5))
    ]


def right(q_HD: Tensor, up_HDZ: Tensor, c_SZ: Tensor) -> Tensor:
    """The query goes down to the latents' width; then it meets them all."""
    return torch.einsum("hd,hdz->hz", q_HD, up_HDZ) @ c_SZ.T / q_HD.shape[1] ** 0.5


def not_written_out(case: Case, seen: dict[str, Any]) -> str | None:
    """No key of every head and token."""
    q_HD, _, c_SZ = case.args
    return small(q_HD.numel() * len(c_SZ), "the keys of all heads and tokens were", seen)


EXERCISE = Exercise(
    title="Absorb the key projection",
    read="book/13-choosing-a-strategy",
    hint="q · (W c) = (Wᵀ q) · c. Turn the one query around, not the S keys.",
    checked="the scores for four sizes, and that no tensor as large as all keys was made",
    cases=cases,
    observe=watched,
    compared=lambda seen: seen["out"],
    right=right,
    rules=(not_written_out,),
    mistakes=(
        Mistake(lambda q, up, c: right(q, up, c) * q.shape[1] ** 0.5, "the scores are not divided by the square root of D"),
        Mistake(lambda q, up, c: right(q, up, c) * (q.shape[1] / up.shape[2]) ** 0.5,
                "the scores are divided by the root of Z; absorbing changes how they are computed, not what they are: it stays the root of D"),
        Mistake(lambda q, up, c: right(q, up, c).T, "the axes are the other way round: [H, S] was wanted"),
        Mistake(lambda q, up, c: right(q, up[:1].expand_as(up), c), "all heads use the first head's projection"),
    ),
)  # fmt: skip
