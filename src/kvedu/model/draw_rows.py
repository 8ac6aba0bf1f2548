"""Next tokens of many rows, drawn where their logits are: what ``Sampler.choose`` draws, without a wait of the host.

A GPU that is asked "which tokens are left?" must finish first what it was asked before, and the host, which waits for the answer, asks
for nothing meanwhile. So nothing here depends on a number that only the device knows: filters rank the
whole vocabulary instead of looking for a short list, and whatever a row keeps is a mask.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch
from torch import Tensor

from kvedu.errors import RequestError
from kvedu.kernels.transfer import put
from kvedu.model.sampling import Sampler, Sampling, logprob_numbers, tempered

CHUNK = 16
"""Rows that are ranked at a time: each takes some ten times V float64 while it is."""


class Draw(NamedTuple):
    """Who draws; the ids so far, for a penalty; and one id more, int64 ``[]``, that only the device knows yet."""

    sampler: Sampler
    seen: Sequence[int] = ()
    late: Tensor | None = None

    def seen_there(self, device: torch.device) -> Tensor:
        """All ids so far, on the device."""
        ids = put(list(self.seen), device)
        return ids if self.late is None else torch.cat((ids, self.late[None].clamp(min=0)))


def draw_rows(draws: Sequence[Draw], logits_RV: Tensor) -> Tensor:
    """What ``choose`` draws for each row, int64 ``[R]`` where the logits are; -1 where a row's largest logit is not finite.

    Rows are drawn apart, whatever else is drawn. Cost on a GPU: some four passes over R x V float64; for a row with a filter a stable
    sort besides, for one with a penalty a few launches. On a CPU, where there is nothing to wait for, such rows are chosen one by one.
    """
    V = logits_RV.shape[1]
    plain = [row for row, draw in enumerate(draws) if _keeps_all(draw.sampler.sampling, V)]
    others = [row for row in range(len(draws)) if row not in set(plain)]
    if not others:
        return _plain(draws, logits_RV)
    choose = _one_by_one if logits_RV.device.type == "cpu" else _ranked
    groups = [(plain, _plain, len(draws)), (others, choose, CHUNK)]
    parts = [
        draw([draws[row] for row in rows[first : first + step]], logits_RV[put(rows[first : first + step], logits_RV.device)])
        for rows, draw, step in groups
        for first in range(0, len(rows), step)
    ]
    order = sorted(range(len(draws)), key=(plain + others).__getitem__)
    return torch.cat(parts)[put(order, logits_RV.device)]


def _keeps_all(sampling: Sampling, V: int) -> bool:
    """Whether any of V tokens may be drawn."""
    return not sampling.greedy and not 0 < sampling.top_k < V and sampling.top_p == 1 and sampling.min_p == 0


def _plain(draws: Sequence[Draw], logits_RV: Tensor) -> Tensor:
    """Rows that keep all tokens, in the order of their ids."""
    tempered_RV = _tempered(draws, logits_RV)
    cumulative_RV = torch.softmax(tempered_RV, dim=-1).cumsum(-1)
    places_R = torch.searchsorted(cumulative_RV, _uniform(draws, logits_RV.device) * cumulative_RV[:, -1:], right=True)[:, 0]
    return _unbroken(places_R.clamp(max=logits_RV.shape[1] - 1), tempered_RV)


def _tempered(draws: Sequence[Draw], logits_RV: Tensor) -> Tensor:
    """``tempered`` of every row; all at once where nobody has a penalty."""
    device, settings = logits_RV.device, [draw.sampler.sampling for draw in draws]
    if any(one.repetition_penalty != 1 for one in settings):
        rows = zip(logits_RV, settings, draws)
        return torch.stack([tempered(logits_V, one, draw.seen_there(device)) for logits_V, one, draw in rows])
    logits_RV, heat_R1 = logits_RV.to(torch.float64), put([[one.temperature or 1.0] for one in settings], device, torch.float64)
    return (logits_RV - logits_RV.amax(dim=-1, keepdim=True)) / heat_R1


def _one_by_one(draws: Sequence[Draw], logits_RV: Tensor) -> Tensor:
    """The definition."""
    return torch.tensor([_chosen(draw, logits_V) for draw, logits_V in zip(draws, logits_RV)])


def _chosen(draw: Draw, logits_V: Tensor) -> int:
    try:
        return draw.sampler.choose(logits_V, draw.seen_there(logits_V.device))
    except RequestError:
        return -1


def _ranked(draws: Sequence[Draw], logits_RV: Tensor) -> Tensor:
    """Rows in the order of their probabilities, of which each keeps the first few, greedy ones one."""
    device, V = logits_RV.device, logits_RV.shape[1]
    settings = [draw.sampler.sampling for draw in draws]
    k_R1, top_p_R1, min_p_R1 = (
        put([[value] for value in values], device, dtype)
        for values, dtype in (
            ([1 if one.greedy else one.top_k if 0 < one.top_k < V else V for one in settings], torch.int64),
            ([one.top_p for one in settings], torch.float64),
            ([one.min_p for one in settings], torch.float64),
        )
    )
    tempered_RV = _tempered(draws, logits_RV)
    probs_RV, ids_RV = torch.softmax(tempered_RV, dim=-1).sort(dim=-1, descending=True, stable=True)
    cumulative_RV = probs_RV.cumsum(-1)
    mass_R1 = torch.where(k_R1 < V, cumulative_RV.gather(-1, k_R1 - 1), 1.0)
    keep_RV = cumulative_RV / mass_R1 - probs_RV / mass_R1 < top_p_R1
    keep_RV &= probs_RV >= min_p_R1 * probs_RV[:, :1]
    keep_RV &= torch.arange(V, device=device) < k_R1
    last_R1 = (keep_RV.sum(-1, keepdim=True) - 1).clamp(min=0)  # those that are kept come first
    places_R1 = torch.searchsorted(cumulative_RV, _uniform(draws, device) * cumulative_RV.gather(-1, last_R1), right=True)
    return _unbroken(ids_RV.gather(-1, places_R1.minimum(last_R1))[:, 0], tempered_RV)


def _uniform(draws: Sequence[Draw], device: torch.device) -> Tensor:
    """``[R, 1]``: a number of each one's stream; greedy ones use none."""
    numbers = [0.0 if draw.sampler.sampling.greedy else draw.sampler.uniform() for draw in draws]
    return put([[u] for u in numbers], device, torch.float64)


def _unbroken(ids_R: Tensor, tempered_RV: Tensor) -> Tensor:
    return torch.where(tempered_RV.amax(-1) == 0, ids_R, -1)


def report_row(draw: Draw, logits_V: Tensor, token: Tensor) -> Tensor:
    """What the draw's settings report of a token, int64 ``[]``: ``logprob_numbers`` of what they say to look at. A token -1 is taken for 0."""
    sampling = draw.sampler.sampling
    if sampling.tempered_logprobs:
        logits_V = tempered(logits_V, sampling, draw.seen_there(logits_V.device))
    return logprob_numbers(logits_V, token.clamp(min=0), sampling.logprobs)
