"""Lab 15, exercise 3: cached keys turned from the positions where they were rotated to others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Back, forth and not at all; SmolLM2's head size and a small one; one key and many."""
    made = []
    for n, K, D in ((6, 3, 64), (1, 1, 8), (9, 2, 16)):
        inv_freq_J = 10_000.0 ** (-2 * torch.arange(D // 2) / D)
        old = torch.tensor([fresh.integer(20, 200) for _ in range(n)])
        for name, new in (
            ("back to 0, 1, 2 …", torch.arange(n)),
            ("forth", old + fresh.integer(5, 60)),
            ("each its own way", torch.tensor([fresh.integer(0, 200) for _ in range(n)])),
            ("they stay", old.clone()),
        ):
            made.append(Case(f"{n} keys, D={D}: {name}", (fresh.normal(n, K, D), old, new, inv_freq_J)))
    return made


def turning(by: Any, *, neighbors: bool = False) -> Any:
    """An answer that turns by another angle, or other pairs."""

    def answer(k_SKD: Tensor, old_S: Tensor, new_S: Tensor, inv_freq_J: Tensor) -> Tensor:
        angle = (by(old_S, new_S).to(torch.float32)[:, None] * inv_freq_J)[:, None]
        cos, sin = angle.cos(), angle.sin()
        if neighbors:
            a, b = k_SKD[..., ::2], k_SKD[..., 1::2]
            return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
        a, b = k_SKD.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    return answer


EXERCISE = Exercise(
    title="Turn cached keys",
    read="book/15-sinks-rope-qk-ov",
    hint="Rotations add up: a rotation by old and then by x is one by old + x. Which x gives new?",
    checked="keys moved back, forth, each its own way and not at all, for three head sizes",
    cases=cases,
    right=turning(lambda old, new: new - old),
    mistakes=(
        Mistake(turning(lambda old, new: new), "the keys are turned by the new position, but they are turned by the old one already; only the difference is missing"),
        Mistake(turning(lambda old, new: old - new), "the keys are turned the wrong way round: by old - new"),
        Mistake(turning(lambda old, new: new - old, neighbors=True), "neighboring dimensions (2j, 2j + 1) are turned together; in this layout pair j is dimensions j and j + D/2"),
        Mistake(lambda k_SKD, old_S, new_S, inv_freq_J: k_SKD.clone(), "the keys come back as they were; to number them anew is not enough, they have to be turned"),
        Mistake(turning(lambda old, new: (new - old)[:1].expand(len(old))), "all keys are turned by what the first one moves; each moves by its own step"),
    ),
)  # fmt: skip
