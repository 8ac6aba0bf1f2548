"""Lab 3, exercise 2: decode attention that reads each key once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.allocation import LargestNew
from kvedu.grading.exercise import Case, Exercise, Mistake, call
from kvedu.grading.fresh import Fresh
from kvedu.kernels.attention import attention_reference
from kvedu.units import MiB


def cases(fresh: Fresh) -> list[Case]:
    """MHA, GQA with K != G both ways, MQA; a group of 3; two head sizes."""
    made = []
    for H, K, D in ((9, 3, 64), (8, 2, 32), (6, 6, 64), (8, 1, 32), (28, 4, 64)):
        S = fresh.integer(1100, 1400)
        shapes = (H, D), (K, S, D), (K, S, D)
        made.append(Case(f"H={H}, K={K}, S={S}, D={D}", tuple(fresh.normal(*shape) for shape in shapes)))
    return made


def observe(answer: Any, q_HD: Tensor, k_KSD: Tensor, v_KSD: Tensor) -> dict[str, Any]:
    """The output, and the largest tensor that was made on the way."""
    with LargestNew(q_HD, k_KSD, v_KSD) as watch:
        out_HD = call(answer, q_HD, k_KSD, v_KSD)
    return {"out": out_HD, "largest": watch.largest, "operation": watch.operation}


def reference(q_HD: Tensor, k_KSD: Tensor, v_KSD: Tensor) -> Tensor:
    """The library's slow truth."""
    visible = torch.ones(1, k_KSD.shape[1], dtype=torch.bool)
    return attention_reference(q_HD[None], k_KSD.transpose(0, 1), v_KSD.transpose(0, 1), visible)[0]


def reads(index: Callable[[Tensor, int, int], Tensor] | None = None, scale: Callable[[int], float] = lambda D: 1 / math.sqrt(D)) -> Any:
    """An answer in which query head h reads KV head ``index(h, H, K)``."""

    def answer(q_HD: Tensor, k_KSD: Tensor, v_KSD: Tensor) -> Tensor:
        H, K = len(q_HD), len(k_KSD)
        head_H = torch.arange(H) // (H // K) if index is None else index(torch.arange(H), H, K)
        weights_HS = (torch.einsum("hd,hsd->hs", q_HD, k_KSD[head_H]) * scale(q_HD.shape[1])).softmax(dim=-1)
        return torch.einsum("hs,hsd->hd", weights_HS, v_KSD[head_H])

    return answer


def copies_nothing(case: Case, seen: dict[str, Any]) -> str | None:
    """No tensor as large as the keys."""
    keys = case.args[1].nbytes
    if seen["largest"] < keys:
        return None
    return f"{seen['operation']} made a tensor of {seen['largest'] / MiB:.1f} MiB, and the keys have {keys / MiB:.1f} MiB: that is a copy"


EXERCISE = Exercise(
    title="Share without a copy",
    read="book/03-mha-mqa-gqa",
    hint="Do not make the keys more. Make the queries of a group the rows of one matrix, [K, G, D], and multiply by k_KSD.mT.",
    checked="equal to attention head by head for MHA, GQA and MQA, and no tensor as large as the keys was made",
    cases=cases,
    observe=observe,
    compared=lambda seen: seen["out"],
    right=reference,
    mistakes=(
        Mistake(reads(lambda h, H, K: h % K), "query heads read KV heads 0, 1, 2, 0, 1, 2; the G heads of a group stand side by side: h reads h // G"),
        Mistake(reads(scale=lambda D: 1.0), "the scores are not scaled by 1/sqrt(D)"),
        Mistake(reads(scale=lambda D: 1 / D), "the scores are scaled by 1/D; 1/sqrt(D) was wanted"),
        Mistake(reads(lambda h, H, K: (h // K).clamp(max=K - 1)), "the heads are divided by K; a group has G = H / K heads: h reads h // G"),
    ),
    rules=(copies_nothing,),
)
