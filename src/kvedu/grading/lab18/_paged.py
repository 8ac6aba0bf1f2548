"""Sequences in pages for lab 18, and decode attention over them in plain PyTorch, right and wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import hollow


def paged(fresh: Fresh, lengths: Sequence[int], K: int, D: int, C: int) -> dict[str, Any]:
    """Shuffled pages ``[P, C, K, D]`` of keys and values with NaN where no token is, block tables, lengths; all with gaps in memory."""
    needed = [-(-length // C) for length in lengths]
    order = fresh.shuffled(range(sum(needed) + 2))
    tables = torch.zeros(len(lengths), max(needed), dtype=torch.int32)
    k_PCKD, v_PCKD = (torch.full((len(order), C, K, D), torch.nan) for _ in "kv")
    for b, (length, n) in enumerate(zip(lengths, needed)):
        pages = [order.pop() for _ in range(n)]
        tables[b, :n] = torch.tensor(pages, dtype=torch.int32)
        place = torch.arange(length)
        page = torch.tensor(pages)[place // C]
        for x_PCKD in (k_PCKD, v_PCKD):
            x_PCKD[page, place % C] = fresh.normal(length, K, D)
    return {"k": hollow(k_PCKD), "v": hollow(v_PCKD), "tables": hollow(tables), "lengths": torch.tensor(lengths, dtype=torch.int32)}


def tokens(x_PCKD: Tensor, table_J: Tensor, length: int) -> Tensor:
    """A sequence's tokens side by side, ``[length, K, D]``."""
    C = x_PCKD.shape[1]
    return x_PCKD[table_J[: -(-length // C)].long()].flatten(0, 1)[:length]


def attend(
    q_HD: Tensor, k_SKD: Tensor, v_SKD: Tensor, scale: float, head_of: Callable[[int, int], int] | None = None
) -> tuple[Tensor, Tensor]:
    """Attention ``[H, D]`` of one query a head over S keys, and the log-sum-exp of its scores ``[H]``; nothing and -inf over no keys."""
    H, K = len(q_HD), k_SKD.shape[1]
    if not len(k_SKD):
        return torch.zeros_like(q_HD), torch.full((H,), -torch.inf)
    outs, logs = [], []
    for h in range(H):
        kv = head_of(h, K) if head_of else h // (H // K)
        scores_S = k_SKD[:, kv] @ q_HD[h] * scale
        outs.append(torch.softmax(scores_S, 0) @ v_SKD[:, kv])
        logs.append(torch.logsumexp(scores_S, 0))
    return torch.stack(outs), torch.stack(logs)
