"""Lab 12, exercise 2: a group of numbers to codes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit, call
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab12._codes import back, to_codes


def cases(fresh: Fresh) -> list[Case]:
    """Noise, numbers far from zero, all equal, all zero, one that stands out, in 2, 4 and 8 bits."""
    return [
        Case("noise, 4 bits", (fresh.normal(32), 4)),
        Case("noise, 2 bits", (fresh.normal(17), 2)),
        Case("noise, 8 bits", (3 * fresh.normal(64), 8)),
        Case("far above zero, 4 bits", (fresh.normal(32) + 40, 4)),
        Case("far below zero, 2 bits", (fresh.normal(32) - 11, 2)),
        Case("all equal", (torch.full((32,), 100.0), 4)),
        Case("all zero", (torch.zeros(8), 2)),
        Case("one stands out", (torch.cat((fresh.normal(31), torch.tensor([25.0]))), 4)),
    ]


def observe(answer: Any, x_n: Tensor, bits: int) -> Any:
    """What comes back from codes, scale and zero point."""
    got = call(answer, x_n, bits)
    if type(got) is not tuple or len(got) != 3:
        raise Unfit("three things were wanted: codes, scale, zero point")
    codes, scale, zero = got
    scale, zero = (x.item() if isinstance(x, Tensor) and x.numel() == 1 else x for x in (scale, zero))
    if not isinstance(codes, Tensor) or codes.dtype != torch.uint8:
        raise Unfit(f"codes are bytes: a tensor of dtype torch.uint8, not {getattr(codes, 'dtype', type(codes).__name__)}")
    if not isinstance(scale, (int, float)) or not isinstance(zero, (int, float)):
        raise Unfit("scale and zero point are plain numbers (or tensors of one element)")
    if codes.shape != x_n.shape:
        raise Unfit(f"one code for each number was wanted, shape {tuple(x_n.shape)}, not {tuple(codes.shape)}")
    return back(codes, float(scale), float(zero))


def too_many_steps(x_n: Tensor, bits: int) -> Any:
    """Divides the range by 2**bits, so the largest number gets a code that does not exist and is cut off."""
    zero = x_n.min().item()
    scale = (x_n.max().item() - zero) / 2**bits
    codes = torch.zeros_like(x_n) if scale == 0 else ((x_n - zero) / scale).round().clamp(0, 2**bits - 1)
    return codes.to(torch.uint8), scale, zero


def rounds_down(x_n: Tensor, bits: int) -> Any:
    """Cuts instead of rounding."""
    zero = x_n.min().item()
    scale = (x_n.max().item() - zero) / (2**bits - 1)
    codes = torch.zeros_like(x_n) if scale == 0 else ((x_n - zero) / scale + 1e-4).floor().clamp(0, 2**bits - 1)
    return codes.to(torch.uint8), scale, zero


def from_zero(x_n: Tensor, bits: int) -> Any:
    """Counts from zero instead of the lowest number."""
    low = min(x_n.min().item(), 0.0)
    scale = (max(x_n.max().item(), 0.0) - low) / (2**bits - 1)
    codes = torch.zeros_like(x_n) if scale == 0 else ((x_n - low) / scale).round()
    return codes.to(torch.uint8), scale, low


EXERCISE = Exercise(
    title="A group to codes",
    read="book/12-quantizing-the-cache",
    hint="Four codes make three steps. The lowest number is the zero point; and what is the step if all numbers are equal?",
    checked="every number comes back within half a step, in 2, 4 and 8 bits, near zero and far from it, equal numbers exactly",
    cases=cases,
    observe=observe,
    right=to_codes,
    mistakes=(
        Mistake(too_many_steps, "2**bits codes make 2**bits - 1 steps; here the highest number does not come back"),
        Mistake(rounds_down, "numbers are cut down to a step instead of rounded to the nearest one"),
        Mistake(from_zero, "the codes count from 0.0 instead of from the lowest number, so numbers far from zero share very few codes"),
    ),
    tolerance=1e-3,
)  # fmt: skip
