"""Lab 18, exercise 5: partial results put together by their log-sums."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel


def right(parts: Tensor, logs: Tensor, out: Tensor, **rest: Any) -> None:
    """Weighted by the softmax of the log-sums; empty parts do not count."""
    out.copy_((torch.softmax(logs, -1)[..., None] * parts.where(logs[..., None] > -torch.inf, 0)).sum(2))


def mean(parts: Tensor, logs: Tensor, out: Tensor, **rest: Any) -> None:
    """Every part that is there counts alike."""
    used = (logs > -torch.inf)[..., None]
    out.copy_(parts.where(used, 0).sum(2) / used.sum(2))


def reads_empty(parts: Tensor, logs: Tensor, out: Tensor, **rest: Any) -> None:
    """0 times what an empty part's memory holds."""
    out.copy_((torch.softmax(logs, -1)[..., None] * parts).sum(2))


def no_maximum(parts: Tensor, logs: Tensor, out: Tensor, **rest: Any) -> None:
    """exp of the log-sums as they are."""
    weights = logs.exp()
    out.copy_((weights[..., None] * parts.where(logs[..., None] > -torch.inf, 0)).sum(2) / weights.sum(-1, keepdim=True))


def not_divided(parts: Tensor, logs: Tensor, out: Tensor, **rest: Any) -> None:
    """Weights relative to the largest, not to their sum."""
    weights = (logs - logs.amax(-1, keepdim=True)).exp()
    out.copy_((weights[..., None] * parts.where(logs[..., None] > -torch.inf, 0)).sum(2))


def cases(fresh: Fresh) -> list[Case]:
    """One split, several, empty ones whose memory is NaN, log-sums beyond what exp can take."""
    made = []
    for B, H, S, D, empties, far in ((1, 2, 1, 16, (), 0.0), (2, 3, 4, 16, (), 0.0), (2, 2, 5, 32, (1, 4), 0.0), (1, 2, 3, 16, (2,), 200.0), (1, 2, 2, 16, (), -200.0)):
        parts, logs = fresh.normal(B, H, S, D), 2 * fresh.normal(B, H, S) + far
        for i in empties:
            parts[:, :, i], logs[:, :, i] = torch.nan, -torch.inf
        name = f"{S} splits" + (f", {len(empties)} of them empty" if empties else "") + (f", log-sums near {far:g}" if far else "")
        made.append(Case(name, (hollow(parts), hollow(logs))))
    return made


def observe(kernel: Any, parts: Tensor, logs: Tensor) -> dict[str, Any]:
    """One program for each query head and sequence."""
    B, H, S, D = parts.shape
    out = empty(B, H, D)
    args = dict(
        parts=parts, logs=logs, out=out, p_b=parts.stride(0), p_h=parts.stride(1), p_s=parts.stride(2), l_b=logs.stride(0), l_h=logs.stride(1),
        out_b=out.stride(0), out_h=out.stride(1), splits=S,
    )  # fmt: skip
    return run_kernel(kernel, (H, B), args, ("out",), dict(D=D, SP=8))


EXERCISE = Exercise(
    title="Merging splits",
    read="book/18-paged-decode-kernel",
    hint="Load the log-sums with −inf where there is no split. The weights are their softmax. Which parts must not be loaded?",
    checked="five sets of parts: 1 to 5 splits, empty ones whose memory is NaN, log-sums near 200 and −200",
    cases=cases,
    observe=observe,
    compared=left,
    right=Twin(right),
    mistakes=(
        Mistake(Twin(mean), "the parts are averaged; each counts as much as its log-sum says"),
        Mistake(Twin(reads_empty), "an empty part is read; its weight is 0, but 0 times NaN is NaN: leave it out of the load with the mask, and say `other=0.0`"),
        Mistake(Twin(no_maximum), "large log-sums overflow, and small ones vanish: take the largest away before `tl.exp`"),
        Mistake(Twin(not_divided), "the weights do not sum to 1: divide by their sum"),
    ),
)  # fmt: skip
