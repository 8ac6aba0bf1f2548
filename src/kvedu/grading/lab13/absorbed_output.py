"""Lab 13, exercise 4: the heads' outputs from latents, without making a value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab13._counted import small, watched


def cases(fresh: Fresh) -> list[Case]:
    """Weights that sum to one; more tokens than a latent is wide."""
    return [
        Case(f"S={S}, H={H}, D={D}, Z={Z}", (fresh.normal(H, S).softmax(-1), fresh.normal(S, Z), fresh.normal(H, D, Z)))
        for S, H, D, Z in ((40, 3, 8, 12), (33, 4, 6, 10), (50, 2, 16, 16), (20, 2, 8, 5))
    ]


def right(weights_HS: Tensor, c_SZ: Tensor, up_HDZ: Tensor) -> Tensor:
    """Mix the latents, then bring the one mixture up."""
    return torch.einsum("hz,hdz->hd", weights_HS @ c_SZ, up_HDZ)


def not_written_out(case: Case, seen: dict[str, Any]) -> str | None:
    """No value of every head and token."""
    weights_HS, _, up_HDZ = case.args
    return small(weights_HS.numel() * up_HDZ.shape[1], "the values of all heads and tokens were", seen)


EXERCISE = Exercise(
    title="Absorb the value projection",
    read="book/13-choosing-a-strategy",
    hint="A sum of projections is the projection of the sum: mix the latents first.",
    checked="the outputs for four sizes, and that no tensor as large as all values was made",
    cases=cases,
    observe=watched,
    compared=lambda seen: seen["out"],
    right=right,
    rules=(not_written_out,),
    mistakes=(
        Mistake(lambda w, c, up: torch.einsum("z,hdz->hd", c.mean(0), up), "the weights are not used; every token counts the same"),
        Mistake(lambda w, c, up: right(w.mean(0, keepdim=True).expand_as(w), c, up), "all heads mix with the same weights"),
        Mistake(lambda w, c, up: w @ c, "that is the mixture of latents, [H, Z]; it still has to be brought up to [H, D]"),
        Mistake(lambda w, c, up: right(w, c, up[:1].expand_as(up)), "all heads use the first head's projection"),
    ),
)  # fmt: skip
