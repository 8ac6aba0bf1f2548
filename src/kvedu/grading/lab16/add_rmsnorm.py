"""Residual and norm in one kernel: what the first needs, the second has on the chip."""

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel

EPS = 0.5
"""Large, so that where it stands is seen."""


def cases(fresh):
    return [
        Case(f"{n} rows of {m}, tiles of {block}", (hollow(fresh.normal(n, m)), hollow(fresh.normal(n, m)), hollow(1 + fresh.normal(m)), block))
        for n, m, block in ((1, 5, 8), (3, 33, 64), (2, 64, 64), (4, 20, 32))
    ]


def observe(kernel, x_NM: Tensor, residual_NM: Tensor, weight_M: Tensor, block: int):
    N, M = x_NM.shape
    args = dict(x=x_NM, residual=residual_NM, weight=weight_M, total=empty(N, M), normed=empty(N, M), M=M, eps=EPS)
    args |= {f"{name}_n": args[name].stride(0) for name in ("x", "residual", "total", "normed")}
    return run_kernel(kernel, (N,), args, ("total", "normed"), dict(BLOCK=block))


def twin(*, width=None, eps_inside=True, of_total=True, weighted=True, other=True) -> Twin:
    def fill(x, residual, weight, total, normed, M, eps, BLOCK, **_):
        total.copy_(x + residual)
        y = total if of_total else x
        mean = y.square().sum(-1, keepdim=True) / (BLOCK if width == "block" else M)
        normed.copy_(y * ((mean + eps).rsqrt() if eps_inside else 1 / (mean.sqrt() + eps)) * (weight if weighted else 1))
        if not other and BLOCK > M:
            normed.fill_(torch.nan)

    return Twin(fill)


def each_once(case: Case, seen) -> "str | None":
    """x, the residual and the weight cross the bus once for each row."""
    x_NM = case.args[0]
    floor = 3 * x_NM.numel() * x_NM.element_size()
    if seen["asked"] is None or seen["asked"] <= floor:
        return None
    return f"{seen['asked']:,} bytes are read where {floor:,} would do: what has been loaded or computed is still on the chip, do not fetch it again"


EXERCISE = Exercise(
    title="Two operations, one read",
    read="book/16-roofline",
    hint="Load x and residual; add; store the sum; and go on with the tile that you have.",
    checked="rows of 5 to 64 numbers in tiles of 8 to 64, with gaps between rows; sum and norm both; no byte of a row read twice",
    cases=cases,
    observe=observe,
    compared=left,
    parts=("total", "normed"),
    right=twin(),
    mistakes=(
        Mistake(twin(width="block"), "the mean is taken over the whole tile; the lanes behind the row's end are not part of it"),
        Mistake(twin(eps_inside=False), "eps is added to the root; it belongs under it"),
        Mistake(twin(of_total=False), "x alone is normed, without the residual"),
        Mistake(
            twin(other=False), "the lanes behind the row's end hold anything, here NaN, and the sum of squares takes them in: a masked load wants other=0.0",
            hint="tl.load(…, mask=inside, other=0.0): the interpreter of this check gives NaN where nothing is said, a GPU whatever was there.",
        ),
        Mistake(twin(weighted=False), "the norm is not multiplied by the weight"),
    ),
    rules=(each_once,),
)  # fmt: skip
