"""Lab 12, exercise 3, part one: two codes of 4 bits in a byte."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.kernels.codes import pack


def right(codes_n: Tensor) -> Tensor:
    """The library's packing."""
    return pack(codes_n, 4)


def padded(codes_n: Tensor) -> Tensor:
    """An even number of codes."""
    return torch.nn.functional.pad(codes_n, (0, len(codes_n) % 2)).to(torch.uint8)


def other_order(codes_n: Tensor) -> Tensor:
    """The first code in the high half."""
    codes = padded(codes_n)
    return codes[0::2] * 16 + codes[1::2]


def halves(codes_n: Tensor) -> Tensor:
    """The first half of the codes in the low halves of the bytes."""
    codes = padded(codes_n)
    n = len(codes) // 2
    return codes[:n] + codes[n:] * 16


def loses_the_last(codes_n: Tensor) -> Tensor:
    """An odd code has no byte."""
    return pack(codes_n[: len(codes_n) // 2 * 2], 4)


def one_each(codes_n: Tensor) -> Tensor:
    """A byte for each code."""
    return codes_n.clone()


def ten(codes_n: Tensor) -> Tensor:
    """Shifted by ten instead of sixteen."""
    codes = padded(codes_n)
    return codes[0::2] + codes[1::2] * 10


def cases(fresh: Fresh) -> list[Case]:
    """All pairs, even and odd counts, none."""
    every = torch.tensor([[a, b] for a in range(16) for b in range(16)], dtype=torch.uint8).flatten()
    sizes = (1, 2, 5, 8, 64, 65)
    return [Case("every pair of codes", (every,)), Case("none", (every[:0],))] + [
        Case(f"{n} codes", (torch.tensor(fresh.tokens(n, 16), dtype=torch.uint8),)) for n in sizes
    ]


EXERCISE = Exercise(
    title="Two codes in a byte",
    read="book/12-quantizing-the-cache",
    hint="A byte is low + 16 × high. `codes[0::2]` are the even places. What if the number of codes is odd?",
    checked="all 256 pairs, and 0 to 65 codes, even and odd",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(other_order, "the first code of a pair stands in the high half of its byte; it belongs in the low one"),
        Mistake(halves, "the first half of the codes is put beside the second half; neighbors share a byte"),
        Mistake(loses_the_last, "with an odd number of codes the last one is lost; it has a byte of its own"),
        Mistake(one_each, "every code still has a byte of its own, half of which is always zero"),
        Mistake(ten, "half a byte counts to 16, not to 10"),
    ),
)
