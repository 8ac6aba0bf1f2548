"""Lab 19, exercise 3: two signed codes of 4 bits out of each byte."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel
from kvedu.kernels.codes import pack, unpack


def right(packed: Tensor, scales: Tensor, out: Tensor, **rest: Any) -> None:
    """The library's own unpacking, times the scale."""
    out.copy_(unpack(packed, 4, out.shape[1], signed=True).float() * scales[:, None])


def unsigned(packed: Tensor, scales: Tensor, out: Tensor, **rest: Any) -> None:
    """Codes of 8 and more are positive."""
    out.copy_(unpack(packed, 4, out.shape[1]).float() * scales[:, None])


def offset(packed: Tensor, scales: Tensor, out: Tensor, **rest: Any) -> None:
    """8 is subtracted from every code."""
    out.copy_((unpack(packed, 4, out.shape[1]).float() - 8) * scales[:, None])


def swapped(packed: Tensor, scales: Tensor, out: Tensor, **rest: Any) -> None:
    """The high half first."""
    right((packed << 4) | (packed >> 4), scales, out)


def halves(packed: Tensor, scales: Tensor, out: Tensor, **rest: Any) -> None:
    """All low halves, then all high ones."""
    right(packed, scales, out)
    out.copy_(torch.cat((out[:, 0::2], out[:, 1::2]), 1))


def unscaled(packed: Tensor, scales: Tensor, out: Tensor, **rest: Any) -> None:
    """Bare codes."""
    right(packed, torch.ones_like(scales), out)


def cases(fresh: Fresh) -> list[Case]:
    """Every code beside every other (C019), and drawn rows."""
    every = torch.tensor([[a, b] for a in range(-8, 8) for b in range(-8, 8)]).flatten()[None].expand(1, -1)
    drawn = torch.tensor([fresh.tokens(64, 16) for _ in range(3)]) - 8
    return [
        Case(name, (hollow(pack(codes, 4)), fresh.normal(len(codes)).abs() + 0.1))
        for name, codes in (("every pair of codes", every), ("three rows of 64", drawn), ("one pair", torch.tensor([[-1, 7]])))
    ]


def observe(kernel: Any, packed: Tensor, scales: Tensor) -> dict[str, Any]:
    """One program a row."""
    N, D = len(packed), 2 * packed.shape[1]
    out = empty(N, D)
    args = dict(packed=packed, scales=scales, out=out, p_n=packed.stride(0), out_n=out.stride(0))
    return run_kernel(kernel, (N,), args, ("out",), dict(D=D))


EXERCISE = Exercise(
    title="Two signed codes in a byte",
    read="book/19-quantized-pages",
    hint="Number d lies in byte d // 2, in its low half where d is even. A code of 8 to 15 stands for itself minus 16.",
    checked="all 256 pairs of codes −8 to 7, rows of 2 to 512 numbers, a scale for each row",
    cases=cases,
    observe=observe,
    compared=left,
    right=Twin(right),
    mistakes=(
        Mistake(Twin(unsigned), "the sign is lost: codes of 8 to 15 are −8 to −1"),
        Mistake(Twin(offset), "8 is taken from every code; in two's complement only codes of 8 and more are negative, and they lose 16"),
        Mistake(Twin(swapped), "the high half of a byte comes first; the even places lie in the low half"),
        Mistake(Twin(halves), "the low halves of all bytes come first; the two codes of a byte are neighbors"),
        Mistake(Twin(unscaled), "the codes are not multiplied by the row's scale"),
    ),
)
