"""Lab 20, exercise 4: residual and norm in one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel

EPS = 1e-5


def cases(fresh: Fresh) -> list[Case]:
    """Widths below and at a power of two, one row and several, small numbers for which eps counts."""
    made = []
    for n, m, block, scale, label in ((1, 5, 8, 1.0, "one row"), (3, 16, 16, 1.0, "three rows"), (2, 33, 64, 3.0, "two rows"), (4, 12, 16, 0.002, "four rows of small numbers")):
        made.append(Case(f"{label}, {m} wide", (hollow(fresh.normal(n, m) * scale), hollow(fresh.normal(n, m) * scale), 1 + 0.3 * fresh.normal(m), block)))
    return made


def observe(kernel: Any, x_NM: Tensor, residual_NM: Tensor, weight_M: Tensor, block: int) -> dict[str, Any]:
    """A program a row, over tensors with gaps between their rows."""
    N, M = x_NM.shape
    out_NM, total_NM = empty(N, M), empty(N, M)
    args = dict(
        x=x_NM, residual=residual_NM, weight=weight_M, out=out_NM, total=total_NM,
        x_n=x_NM.stride(0), residual_n=residual_NM.stride(0), out_n=out_NM.stride(0), total_n=total_NM.stride(0), M=M, eps=EPS,
    )  # fmt: skip
    return run_kernel(kernel, (N,), args, ("out", "total"), dict(BLOCK=block))


def twin(*, lanes: bool = False, mean: bool = True, eps: bool = True, first: bool = False, weight_too: bool = True, keep: bool = True) -> Twin:
    """The spec, with one thing changed."""

    def fill(x: Tensor, residual: Tensor, weight: Tensor, out: Tensor, total: Tensor, M: int, eps_: float = EPS, BLOCK: int = 1, **rest: Any) -> None:
        whole = x + residual
        of = x if first else whole
        square = of.pow(2).sum(-1, keepdim=True) / (BLOCK if lanes else M if mean else 1)
        scaled = whole * torch.rsqrt(square + (EPS if eps else 0.0))
        out.copy_(scaled * weight if weight_too else scaled)
        if keep:
            total.copy_(whole)

    return Twin(fill)


def once(case: Case, seen: dict[str, Any]) -> str | None:
    """Every number of a row is asked for once, and written once."""
    if seen["asked"] is None:
        return None
    x_NM, _, weight_M, _ = case.args
    least = (2 * x_NM.numel() + len(x_NM) * weight_M.numel()) * 4
    if seen["asked"] > least:
        return f"the kernel asks for {seen['asked']} bytes; each program needs two rows and the weight, once, which are {least} in all: keep the sum in registers, and do not read it again"
    return None


EXERCISE = Exercise(
    title="Residual and norm in one kernel",
    read="book/20-graphs-and-launch-overhead",
    hint="Load x and the residual with a mask and other=0.0, add them, store the sum, and go on with the sum that you have: tl.sum(total * total, 0) / M.",
    checked="rows below and at a power of two, gaps between rows, small numbers, and that nothing is read twice",
    cases=cases,
    observe=observe,
    compared=left,
    parts=("the norm", "the sum"),
    right=twin(),
    rules=(once,),
    tolerance=1e-4,
    seconds=20,
    mistakes=(
        Mistake(twin(lanes=True), "the mean is over BLOCK lanes; only M of them hold numbers"),
        Mistake(twin(mean=False), "it is the root of the sum of squares; divide by M for the mean"),
        Mistake(twin(eps=False), "eps is left out: it is added to the mean square, under the root"),
        Mistake(twin(first=True), "the mean square is that of x alone; the sum is normalized"),
        Mistake(twin(weight_too=False), "the learned weight is left out"),
        Mistake(twin(keep=False), "the sum is not stored; the next layer's residual is read from there"),
    ),
)
