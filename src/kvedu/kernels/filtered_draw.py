"""Draw tokens behind top-k, top-p and min-p filters, without sorting the vocabulary and without asking the host.

Ranked by logit (ties by id) what the three filters keep is always a beginning of the ranking: its end is one logit, and how many of those
equal to it. That logit is found by halving. "How many logits lie above this number, and what do they weigh?" is a sum over the row, and
its answer says on which side of the number the end lies. A dozen such sums leave one bf16 number, twice as many one of fp32 (a test
counts them), and nothing is written. (Selection on GPUs: Alabi et al. 2012. FlashInfer samples without a sort too, by rejection: Ye et
al. 2025.)

Weights are ``exp((logit - largest) / temperature)`` in fp64, so that a filter's edge is where ``model/sampling`` puts it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels.launch import check_rows, check_whole, triton_wanted
from kvedu.units import Cost

SETTINGS = ("temperature", "top_k", "top_p", "min_p", "uniform")
"""Columns of the settings, fp64: temperature 0 is greedy, top_k below 1 or above V keeps all, uniform is in [0, 1)."""
ROWS = 16
"""Rows that the definition ranks at a time."""
BITS = {torch.bfloat16: 19, torch.float16: 22, torch.float32: 35, torch.float64: 64}
"""Bits of a logit as an fp64 number that can differ: sign, exponent, and the mantissa that its own type has."""


def filtered_draw_reference(logits_RV: Tensor, settings_R5: Tensor) -> Tensor:
    """The definition: rank the whole row, keep a beginning of it, draw among those in the order of their ids. Ids int64 ``[R]``.

    -1 for a row whose largest logit is not finite. Nobody waits here either, but it takes some ten times R x V fp64.
    """
    V, device = logits_RV.shape[1], logits_RV.device
    heat_R1, k_R1, top_p_R1, min_p_R1, u_R1 = settings_R5.split(1, dim=-1)
    greedy_R1 = heat_R1 == 0
    k_R1 = torch.where(greedy_R1, 1.0, torch.where((k_R1 < 1) | (k_R1 > V), float(V), k_R1))
    logits_RV = logits_RV.to(torch.float64)
    tempered_RV = (logits_RV - logits_RV.amax(-1, keepdim=True)) / torch.where(greedy_R1, 1.0, heat_R1)
    ranked_RV, ids_RV = tempered_RV.exp().sort(dim=-1, descending=True, stable=True)
    before_RV = torch.nn.functional.pad(ranked_RV.cumsum(-1), (1, 0))  # column i: what the first i weigh
    mass_R1 = before_RV.gather(-1, k_R1.long())
    keep_RV = (before_RV[:, :-1] < top_p_R1 * mass_R1) & (ranked_RV >= min_p_R1) & (torch.arange(V, device=device) < k_R1)
    keep_RV = keep_RV | (torch.arange(V, device=device) == 0)
    kept_RV = torch.zeros_like(ranked_RV).scatter(-1, ids_RV, torch.where(keep_RV, ranked_RV, 0.0))
    cumulative_RV = kept_RV.cumsum(-1)
    places_R1 = torch.searchsorted(cumulative_RV, u_R1 * cumulative_RV[:, -1:], right=True)
    last_R1 = torch.where(kept_RV > 0, torch.arange(V, device=device), 0).amax(-1, keepdim=True)
    return torch.where(tempered_RV.amax(-1) == 0, places_R1.minimum(last_R1)[:, 0], -1)


def filtered_draw(logits_RV: Tensor, settings_R5: Tensor, *, triton: bool | None = None, block: int | None = None) -> Tensor:
    """One id a row, int64 ``[R]``: ``filtered_draw_reference``, on a GPU by one program a row that reads and never writes.

    ``logits_RV`` in any float type, the last axis dense; ``settings_R5`` fp64 on the same device, columns as ``SETTINGS`` says.
    ``block``: logits that a program looks at together. Cost: ``cost``.

    >>> two = torch.tensor([[0.0, 3.0, 1.0], [0.0, 3.0, 1.0]])
    >>> filtered_draw(two, torch.tensor([[0.0, 0, 1, 0, 0], [1.0, 2, 1, 0, 0.99]], dtype=torch.float64)).tolist()
    [1, 2]
    """
    if not triton_wanted(triton, logits_RV):
        parts = zip(logits_RV.split(ROWS), settings_R5.split(ROWS))
        return torch.cat([filtered_draw_reference(logits, settings) for logits, settings in parts])
    from kvedu.kernels.filtered_draw_triton import plan_filtered_draw

    check_rows(logits=logits_RV, settings=settings_R5)
    check_whole(settings=settings_R5)
    ids_R = torch.empty(len(logits_RV), dtype=torch.int64, device=logits_RV.device)
    plan_filtered_draw(logits_RV, settings_R5, ids_R, block).run()
    return ids_R


def passes(dtype: torch.dtype, top_k: bool = False, top_p: bool = False, min_p: bool = False) -> int:
    """How often the kernel reads a row at most: its largest, what is kept weighs, the token; with a filter a search, with top-k and top-p two.

    A search halves the distance of what is left ten times, then the number of numbers in it; mostly the first ten leave few.
    """
    searches = (top_k or top_p or min_p) + (top_k and top_p)
    return 3 + searches * (10 + BITS[dtype] + 1) + (top_p and not top_k)  # a nucleus of all tokens takes one sum more


def cost(rows: int, vocabulary: int, bytes_per_element: int = 2) -> Cost:
    """Each logit from memory once, an id written; further reads of a row find it in the chip's cache. Some 40 operations for a weight in fp64."""
    return Cost(40 * rows * vocabulary, rows * vocabulary * bytes_per_element, 8 * rows)
