"""Logarithm of a row's sum of exponentials, one pass over tiles: the online softmax without the values."""

import math

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel


def rows(fresh, n: int, width: int) -> Tensor:
    """Random rows; the second rises, the third is far below zero, the fourth far above."""
    x = fresh.normal(n, width)
    for i, shift in enumerate((None, 6 * torch.linspace(0, 1, width), -300.0, 300.0)):
        if i < n and shift is not None:
            x[i] += shift
    return x


def cases(fresh):
    blind = rows(fresh, 5, 21)
    blind[4] = -math.inf
    blind[1, :16] = -math.inf
    return [
        Case("4 rows of 37, tiles of 16", (hollow(rows(fresh, 4, 37)), 16)),
        Case("4 rows of 5, one tile", (hollow(rows(fresh, 4, 5)), 8)),
        Case("4 rows of 64, tiles of 16", (hollow(rows(fresh, 4, 64)), 16)),
        Case("5 rows of 21, one begins with 16 times -inf, the last is all -inf", (hollow(blind), 8)),
    ]


def observe(kernel, x_NV: Tensor, block: int):
    args = dict(x=x_NV, out=empty(len(x_NV)), x_n=x_NV.stride(0), V=x_NV.shape[1])
    return run_kernel(kernel, (len(x_NV),), args, ("out",), dict(BLOCK=block))


def right(x, out, **_):
    out.copy_(torch.logsumexp(x, -1))


def walked(x: Tensor, block: int, *, shrink: bool = True, guard: bool = True, other: float = -math.inf) -> Tensor:
    """The walk, with what can go wrong in it."""
    m, l = torch.full((len(x),), -math.inf), torch.zeros(len(x))
    for start in range(0, x.shape[1], block):
        tile = torch.nn.functional.pad(s := x[:, start : start + block], (0, block - s.shape[1]), value=other)
        new = torch.maximum(m, tile.amax(-1))
        safe = new.where(new > -math.inf, 0) if guard else new
        l = l * ((m - safe).exp() if shrink else 1) + (tile - safe[:, None]).exp().sum(-1)
        m = new
    return m + l.log()


def bytes_once(case: Case, seen) -> "str | None":
    x_NV = case.args[0]
    if seen["asked"] is None or seen["asked"] <= x_NV.numel() * x_NV.element_size():
        return None
    return f"{seen['asked']:,} bytes are read, the rows have {x_NV.numel() * x_NV.element_size():,}: take maximum and sum along together, in one pass"


def zero_lanes(x, out, BLOCK, **_):
    out.copy_(walked(x, BLOCK, other=0.0))


EXERCISE = Exercise(
    title="Log-sum of a row, online",
    read="book/17-flashattention",
    hint="When the maximum grows from m to m_new, the sum so far belongs to m: multiply it by exp(m - m_new) before you add the tile's.",
    checked="rows of 5 to 64 numbers in tiles of 8 and 16, with gaps between rows, rising rows, rows near −300 and 300, rows that begin with a tile of −∞ or are all −∞; each number read once",
    cases=cases,
    observe=observe,
    compared=left,
    right=Twin(right),
    mistakes=(
        Mistake(Twin(lambda x, out, BLOCK, **_: out.copy_(walked(x, BLOCK, shrink=False))), "the sum is not rescaled when the maximum grows"),
        Mistake(Twin(lambda x, out, **_: out.copy_(x.exp().sum(-1).log())), "no maximum is subtracted: exp overflows at 300 and vanishes at -300"),
        Mistake(Twin(zero_lanes), "the lanes behind the end of the row count as scores of 0: load them as -inf", hint="tl.load(…, mask=…, other=float('-inf'))"),
        Mistake(
            Twin(lambda x, out, BLOCK, **_: out.copy_(walked(x, BLOCK, guard=False))), "-inf minus -inf gives NaN in a row that has seen nothing yet",
            hint="Subtract 0 instead of a maximum that is still -inf: tl.where(m_new == float('-inf'), 0.0, m_new).",
        ),
    ),
    rules=(bytes_once,),
    tolerance=1e-3,
)  # fmt: skip
