"""The next tokens of a step: each row as it would be drawn alone, and a broken one is an error of its own."""

from __future__ import annotations

from typing import Sequence as Seq

from torch import Tensor

from kvedu.errors import RequestError
from kvedu.model.completion import Run
from kvedu.model.sampling import TokenLogprob

Choice = tuple[int, TokenLogprob | None]


def choose_tokens(runs: Seq[Run], logits_RV: Tensor) -> list[Choice | RequestError]:
    """One token and its report for each run from its row; a ``RequestError`` in the place of a row that is broken.

    Plain greedy rows are taken together, the others one by one.
    """
    tops, best = logits_RV.max(dim=-1)
    finite, best = tops.isfinite().tolist(), best.tolist()
    return [_choose(run, logits_V, best[i], finite[i]) for i, (run, logits_V) in enumerate(zip(runs, logits_RV))]


def _choose(run: Run, logits_V: Tensor, best: int, finite: bool) -> Choice | RequestError:
    sampling = run.sampler.sampling
    try:
        plain = finite and sampling.greedy and sampling.repetition_penalty == 1
        token = best if plain else run.sampler.choose(logits_V, run.ids)
        return token, run.sampler.logprob(token, logits_V, run.ids)
    except RequestError as error:
        return error
