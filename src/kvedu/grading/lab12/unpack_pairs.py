"""Lab 12, exercise 3, part two: codes of 4 bits out of bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.kernels.codes import pack


def right(packed: Tensor, n: int) -> Tensor:
    """Low halves and high halves in turn, n of them."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten()[:n]


def all_of_them(packed: Tensor, n: int) -> Tensor:
    """The filling of the last byte too."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten()


def one_after_the_other(packed: Tensor, n: int) -> Tensor:
    """All low halves, then all high ones."""
    return torch.cat((packed & 15, packed >> 4))[:n]


def other_order(packed: Tensor, n: int) -> Tensor:
    """The high half first."""
    return torch.stack((packed >> 4, packed & 15), dim=-1).flatten()[:n]


def unmasked(packed: Tensor, n: int) -> Tensor:
    """The low code still has the high one in it."""
    return torch.stack((packed, packed >> 4), dim=-1).flatten()[:n]


def cases(fresh: Fresh) -> list[Case]:
    """All bytes, even and odd counts, none."""
    every = torch.arange(256, dtype=torch.uint8)
    drawn = [(n, torch.tensor(fresh.tokens(n, 16), dtype=torch.uint8)) for n in (1, 2, 5, 8, 64, 65)]
    return [Case("every byte", (every, 512)), Case("none", (every[:0], 0))] + [Case(f"{n} codes", (pack(codes, 4), n)) for n, codes in drawn]


EXERCISE = Exercise(
    title="And out again",
    read="book/12-quantizing-the-cache",
    hint="`packed & 15` and `packed >> 4` are the two halves. `torch.stack(…, dim=-1).flatten()` puts them in turn.",
    checked="all 256 bytes, and 0 to 65 codes, even and odd",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(all_of_them, "with an odd number of codes the filling of the last byte comes out as a code; n says how many there are"),
        Mistake(one_after_the_other, "all low halves come first and then all high ones; they belong in turn"),
        Mistake(other_order, "the high half of a byte comes first; the first code is in the low one"),
        Mistake(unmasked, "the low half still holds the high one: take its four bits only"),
    ),
)
