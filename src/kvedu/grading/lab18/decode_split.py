"""Lab 18, exercise 4: one split of the keys, its normalized part and its log-sum-exp."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel
from kvedu.grading.lab18._paged import attend, paged, tokens
from kvedu.grading.lab18.decode import arguments


def fill(q: Tensor, k: Tensor, v: Tensor, parts: Tensor, logs: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, up: bool = True) -> None:
    """Each split takes so many whole pages; shares rounded up, or down."""
    S = parts.shape[2]
    for b, length in enumerate(lengths.tolist()):
        k_SKD, v_SKD = (tokens(x, tables[b], length) for x in (k, v))
        pages = -(-length // C)
        share = C * (-(-pages // S) if up else pages // S)
        for i in range(S):
            lo, hi = min(i * share, length), min((i + 1) * share, length)
            parts[b, :, i], logs[b, :, i] = attend(q[b], k_SKD[lo:hi], v_SKD[lo:hi], scale)


def right(q: Tensor, k: Tensor, v: Tensor, parts: Tensor, logs: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
    """What the lab's ``split_spec`` says."""
    fill(q, k, v, parts, logs, tables, lengths, scale, C)


def rounded_down(q: Tensor, k: Tensor, v: Tensor, parts: Tensor, logs: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
    """Shares rounded down: pages at the end belong to nobody."""
    fill(q, k, v, parts, logs, tables, lengths, scale, C, up=False)


def empty_is_nan(parts: Tensor, logs: Tensor, **rest: Any) -> None:
    """0 / 0 where a split has no key."""
    right(parts=parts, logs=logs, **rest)
    parts[logs.isneginf()] = torch.nan


def not_normalized(parts: Tensor, logs: Tensor, q: Tensor, k: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
    """Sums of weighted values, relative to the split's maximum."""
    right(q=q, k=k, parts=parts, logs=logs, tables=tables, lengths=lengths, scale=scale, C=C, **rest)
    parts *= (logs - maxima(q, k, parts, tables, lengths, scale, C)).nan_to_num(neginf=0.0, nan=-torch.inf).exp()[..., None]


def sum_alone(parts: Tensor, logs: Tensor, q: Tensor, k: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
    """log(l) without the maximum that l is relative to."""
    right(q=q, k=k, parts=parts, logs=logs, tables=tables, lengths=lengths, scale=scale, C=C, **rest)
    found = logs.isfinite()
    logs[found] -= maxima(q, k, parts, tables, lengths, scale, C)[found]


def maximum_alone(parts: Tensor, logs: Tensor, q: Tensor, k: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
    """The maximum in place of the log-sum."""
    right(q=q, k=k, parts=parts, logs=logs, tables=tables, lengths=lengths, scale=scale, C=C, **rest)
    logs.copy_(maxima(q, k, parts, tables, lengths, scale, C))


def maxima(q: Tensor, k: Tensor, parts: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int) -> Tensor:
    """The largest score of each split, ``[B, H, S]``; -inf where there is none."""
    B, H, S, _ = parts.shape
    most = torch.full((B, H, S), -torch.inf)
    for b, length in enumerate(lengths.tolist()):
        k_SHD = tokens(k, tables[b], length).repeat_interleave(H // k.shape[2], 1)
        scores_HS = torch.einsum("hd,shd->hs", q[b], k_SHD) * scale
        share = C * -(-(-(-length // C)) // S)
        for i in range(S):
            if i * share < length:
                most[b, :, i] = scores_HS[:, i * share : (i + 1) * share].amax(1)
    return most


def cases(fresh: Fresh) -> list[Case]:
    """Splits that divide the pages, that do not, and more splits than pages."""
    made = []
    for K, G, lengths, S in ((2, 3, [64, 20], 2), (1, 4, [70, 1], 3), (1, 3, [fresh.integer(33, 48)], 5)):
        scene = paged(fresh, lengths, K, 16, 16)
        q_BHD = hollow(2 * fresh.normal(len(lengths), K * G, 16))
        made.append(Case(f"lengths {', '.join(map(str, lengths))} in {S} splits", (q_BHD, scene["k"], scene["v"], scene["tables"], scene["lengths"], S)))
    return made


def observe(kernel: Any, q: Tensor, k: Tensor, v: Tensor, tables: Tensor, lengths: Tensor, S: int) -> dict[str, Any]:
    """One program for each KV head, sequence and split."""
    args, constants = arguments(q, k, v, tables, lengths)
    (B, H, D), K = q.shape, k.shape[2]
    parts, logs = empty(B, H, S, D), empty(B, H, S)
    args |= dict(
        parts=parts, logs=logs, p_b=parts.stride(0), p_h=parts.stride(1), p_s=parts.stride(2), l_b=logs.stride(0), l_h=logs.stride(1), splits=S,
    )  # fmt: skip
    return run_kernel(kernel, (K, B, S), args, ("parts", "logs"), constants)


def reads_own_share(case: Case, seen: Any) -> str | None:
    """Each key and value once, by the split that it belongs to; queries once for each split."""
    q, k, _, _, lengths, S = case.args
    most = 4 * (2 * int(lengths.sum()) * k.shape[2] * k.shape[3] + S * q.numel())
    if seen["asked"] is None or seen["asked"] <= most:
        return None
    own = "a split walks over its own pages only, and loads each key once"
    return f"the result is right, but {seen['asked']:,} bytes are asked for and {most:,} are enough: {own}"


EXERCISE = Exercise(
    title="One split and its log-sum",
    read="book/18-paged-decode-kernel",
    hint="It is your `decode` with another start and end of the loop, in pages, and another ending. What are l and m after a loop that never ran?",
    checked="three steps in 2, 3 and 5 splits: shares that fit, that do not fit, and splits without a key; each key read once",
    cases=cases,
    observe=observe,
    compared=left,
    parts=("parts", "logs"),
    right=Twin(right),
    mistakes=(
        Mistake(Twin(rounded_down), "shares are rounded down, so the last pages belong to no split: `tl.cdiv(pages, splits)`"),
        Mistake(Twin(empty_is_nan), "a split without keys leaves 0 / 0; its part must be 0, and its log-sum −inf"),
        Mistake(Twin(not_normalized), "the part is not divided by its sum of weights"),
        Mistake(Twin(sum_alone), "the log-sum lacks the maximum: l is relative to it, so the log-sum is m + log(l)"),
        Mistake(Twin(maximum_alone), "the maximum is stored in place of the log-sum; two parts with equal maxima may weigh differently"),
    ),
    rules=(reads_own_share,),
    seconds=20,
)  # fmt: skip
