"""Next tokens of many rows, drawn where their logits are: what ``Sampler.choose`` draws, without a wait of the host.

A GPU that is asked "which tokens are left?" must finish first what it was asked before, and the host, which waits for the answer, asks
for nothing meanwhile. So there nothing depends on a number that only the device knows (``kernels/filtered_draw``). A CPU keeps nobody
waiting: rows with a filter look at a short list, one by one.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch
from torch import Tensor

from kvedu.errors import RequestError
from kvedu.kernels.filtered_draw import filtered_draw
from kvedu.kernels.transfer import put
from kvedu.model.sampling import Sampler, Sampling, logprob_numbers, penalized, tempered


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

    Rows are drawn apart, whatever else is drawn. Cost on a GPU: ``kernels.filtered_draw.cost``, and a few launches for each row with a
    penalty; on a CPU some four passes over R x V float64 for the rows that keep all tokens.
    """
    kinds: dict[bool, list[int]] = {}
    there = not _is_host(logits_RV.device)
    for row, draw in enumerate(draws):
        sampling = draw.sampler.sampling
        kinds.setdefault(sampling.repetition_penalty != 1 if there else not _keeps_all(sampling, logits_RV.shape[1]), []).append(row)
    how = _there if there else _here
    if len(kinds) == 1:
        return how(next(iter(kinds)), draws, logits_RV)
    parts = [how(kind, [draws[row] for row in rows], logits_RV[put(rows, logits_RV.device)]) for kind, rows in kinds.items()]
    order = sorted(range(len(draws)), key=[row for rows in kinds.values() for row in rows].__getitem__)
    return torch.cat(parts)[put(order, logits_RV.device)]


def _is_host(device: torch.device) -> bool:
    return device.type == "cpu"


def _there(penalty: bool, draws: Sequence[Draw], logits_RV: Tensor) -> Tensor:
    """On a GPU: all rows in one launch, those with a penalty as float64."""
    settings = [draw.sampler.sampling for draw in draws]
    if penalty:
        rows = zip(logits_RV, settings, draws)
        logits_RV = torch.stack([penalized(logits_V, one, draw.seen_there(logits_V.device)) for logits_V, one, draw in rows])
    numbers = [[one.temperature, one.top_k, one.top_p, one.min_p, _uniform(draw)] for one, draw in zip(settings, draws)]
    return filtered_draw(logits_RV, put(numbers, logits_RV.device, torch.float64))


def _here(filtered: bool, draws: Sequence[Draw], logits_RV: Tensor) -> Tensor:
    """On a CPU: rows that keep all tokens together, the others by the definition."""
    if filtered:
        return torch.tensor([_chosen(draw, logits_V) for draw, logits_V in zip(draws, logits_RV)])
    heat_R1 = torch.tensor([[draw.sampler.sampling.temperature] for draw in draws], dtype=torch.float64)
    tempered_RV = logits_RV.to(torch.float64)
    tempered_RV = (tempered_RV - tempered_RV.amax(dim=-1, keepdim=True)) / heat_R1
    cumulative_RV = torch.softmax(tempered_RV, dim=-1).cumsum(-1)
    u_R1 = torch.tensor([[_uniform(draw)] for draw in draws], dtype=torch.float64)
    places_R = torch.searchsorted(cumulative_RV, u_R1 * cumulative_RV[:, -1:], right=True)[:, 0]
    return torch.where(tempered_RV.amax(-1) == 0, places_R.clamp(max=logits_RV.shape[1] - 1), -1)


def _keeps_all(sampling: Sampling, V: int) -> bool:
    """Whether any of V tokens may be drawn, by its logit alone."""
    filtered = 0 < sampling.top_k < V or sampling.top_p < 1 or sampling.min_p > 0
    return not (sampling.greedy or filtered or sampling.repetition_penalty != 1)


def _chosen(draw: Draw, logits_V: Tensor) -> int:
    try:
        return draw.sampler.choose(logits_V, draw.seen_there(logits_V.device))
    except RequestError:
        return -1


def _uniform(draw: Draw) -> float:
    """A number of its stream; greedy ones use none."""
    return 0.0 if draw.sampler.sampling.greedy else draw.sampler.uniform()


def report_row(draw: Draw, logits_V: Tensor, token: Tensor) -> Tensor:
    """What the draw's settings report of a token, int64 ``[]``: ``logprob_numbers`` of what they say to look at. A token -1 is taken for 0."""
    sampling = draw.sampler.sampling
    if sampling.tempered_logprobs:
        logits_V = tempered(logits_V, sampling, draw.seen_there(logits_V.device))
    return logprob_numbers(logits_V, token.clamp(min=0), sampling.logprobs)
