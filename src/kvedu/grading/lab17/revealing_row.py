"""A row of scores on which three broken kernels are all wrong: a test that deserves its name."""

from typing import Callable

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise
from kvedu.grading.lab17.log_sum import walked

ENOUGH = 0.01
"""Difference of a log-sum that counts as seen."""


def cases(fresh):
    return [Case(f"V={V}, tiles of {block}", (V, block)) for V, block in ((21, 8), (100, 16), (fresh.integer(33, 47), 16))]


def off(found: Tensor, x_V: Tensor) -> bool:
    """Whether a broken kernel's log-sum is visibly wrong; NaN and inf are."""
    return not bool((found - torch.logsumexp(x_V, -1)).abs() <= ENOUGH)


def is_a_row(case: Case, seen) -> "str | None":
    V = case.args[0]
    if not isinstance(seen, Tensor) or seen.shape != (V,) or not seen.is_floating_point():
        return f"a row of {V} numbers was wanted: a floating-point tensor of shape ({V},)"
    return None if seen.isfinite().all() else "the row must be finite: a test with inf in it shows how inf is handled, nothing else"


def sees(kernel: Callable[[Tensor, int], Tensor], sentence: str) -> Callable:
    def rule(case: Case, seen) -> "str | None":
        return None if off(kernel(seen[None].float(), case.args[1])[0], seen.float()) else sentence

    return rule


EXERCISE = Exercise(
    title="A test that sees",
    read="book/17-flashattention",
    hint="One row can do it all: rising, and far below zero. Ask of each broken kernel what must happen for it to be wrong.",
    checked="three pairs of lengths and tiles, the length never a multiple of the tile: each of the three broken kernels is off by more than 0.01",
    cases=cases,
    right=None,
    rules=(
        is_a_row,
        sees(lambda x, block: walked(x, block, shrink=False), "the kernel that forgets to shrink is right on this row: no later tile brings a larger score"),
        sees(lambda x, block: walked(x, block, other=0.0), "the kernel that loads 0 behind the end is right on this row: next to your scores, a few zeros weigh nothing"),
        sees(lambda x, block: x.exp().sum(-1).log(), "the kernel that subtracts no maximum is right on this row: exp neither overflows nor vanishes"),
    ),
)
