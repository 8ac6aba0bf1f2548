"""From logits to a token: settings per request, one distribution function, one seeded draw.

The order is the one that serving engines share: repetition penalty, temperature, top-k,
top-p, min-p, each on the renormalized outcome of the one before. Everything is computed
in float64 on one row at a time, so what a row draws never depends on its batch mates.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Sequence

import torch
from torch import Tensor

from kvedu.errors import RequestError
from kvedu.kernels.transfer import put


@dataclass(frozen=True)
class Sampling:
    """How one request's tokens are chosen.

    temperature: 0 is greedy (the default). top_k: 0 or -1 or at least V means no filter.
    top_p in [0, 1]: smallest set of tokens whose probability reaches it; at least one is
    kept, so 0 means the most likely token. min_p in [0, 1]: drop tokens below this share
    of the most likely one's probability. repetition_penalty > 0: logits of tokens already
    in prompt or output are divided (if positive) or multiplied (if negative) by it.
    seed: same seed, same tokens; None draws a fresh one. logprobs: report the sampled
    token's log-probability and those of this many most likely tokens (0: the sampled one's
    only; None: none). tempered_logprobs: report them after penalty and temperature
    instead of from the raw logits; filters never change them.

    Raises ``RequestError`` for a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logprobs: int | None = None
    tempered_logprobs: bool = False

    def __post_init__(self) -> None:
        def wants(ok: bool, name: str, wanted: str) -> None:
            if not ok:
                raise RequestError(f"{name} must be {wanted}, not {getattr(self, name)!r}")

        wants(math.isfinite(self.temperature) and self.temperature >= 0, "temperature", "a finite number, 0 or more")
        wants(isinstance(self.top_k, int) and self.top_k >= -1, "top_k", "an integer: -1 or 0 for no filter, else 1 or more")
        wants(0 <= self.top_p <= 1, "top_p", "between 0 and 1")
        wants(0 <= self.min_p <= 1, "min_p", "between 0 and 1")
        wants(math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0, "repetition_penalty", "a positive number")
        wants(self.logprobs is None or self.logprobs >= 0, "logprobs", "None, 0 or more")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0

    @property
    def unfiltered(self) -> bool:
        """Whether a row's logits and the temperature say all: no penalty, and if tokens are drawn, no filter."""
        return self.repetition_penalty == 1 and (self.greedy or (self.top_k < 1 and self.top_p == 1 and self.min_p == 0))


@dataclass(frozen=True)
class TokenLogprob:
    """Log-probability (natural log) of a token, and of the most likely ones at its place, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def distribution(logits_V: Tensor, sampling: Sampling, seen: Sequence[int] = ()) -> Tensor:
    """Probabilities ``[V]`` (float64, sum 1) that the next token is drawn from.

    ``seen`` are the ids so far, for the repetition penalty. Greedy gives all mass to the first
    of the most likely tokens. Tokens of equal logit are ranked by id, so that a tie never
    keeps more than ``top_k``. Raises ``RequestError`` for logits that are NaN.
    """
    ids, probs = _candidates(_checked(tempered(logits_V, sampling, seen)), sampling)
    return torch.zeros(len(logits_V), dtype=torch.float64, device=logits_V.device).index_put((ids,), probs)


def tempered(logits_V: Tensor, sampling: Sampling, seen: Sequence[int] | Tensor = ()) -> Tensor:
    """Logits after repetition penalty and temperature, shifted so that the largest is 0; float64. NaN where the largest is not finite.

    The host waits for nothing.
    """
    logits_V = penalized(logits_V, sampling, seen)
    # Subtracting first keeps a tiny temperature from overflowing.
    return (logits_V - logits_V.max()) / (sampling.temperature or 1.0)


def penalized(logits_V: Tensor, sampling: Sampling, seen: Sequence[int] | Tensor = ()) -> Tensor:
    """Logits after the repetition penalty, float64."""
    logits_V = logits_V.to(torch.float64)
    if sampling.repetition_penalty == 1 or not len(seen):
        return logits_V
    ids = seen if isinstance(seen, Tensor) else put(list(seen), logits_V.device)
    old = logits_V[ids]
    new = torch.where(old > 0, old / sampling.repetition_penalty, old * sampling.repetition_penalty)
    return logits_V.index_put((ids,), new)  # an id that was seen twice is given the same number twice


def _checked(tempered_V: Tensor) -> Tensor:
    if tempered_V.max() != 0:
        raise RequestError(BROKEN)
    return tempered_V


BROKEN = "the model's largest logit is not finite: its weights or its input are broken"


def _candidates(tempered_V: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Tokens that survive the filters, in the order of their ids, and their probabilities."""
    V = len(tempered_V)
    k = 1 if sampling.greedy else sampling.top_k if 0 < sampling.top_k < V else V
    if k == V and sampling.top_p == 1 and sampling.min_p == 0:
        return torch.arange(V, device=tempered_V.device), torch.softmax(tempered_V, dim=-1)
    weights_V = tempered_V.exp()  # the largest is 1
    for width in (k,) if k < V else (min(V, 256), min(V, 8192), V):
        ids, weights = _best(weights_V, width)
        cumulative = weights.cumsum(-1)
        nucleus = sampling.top_p * (cumulative[-1] if k < V else weights_V.sum())
        if cumulative[-1] >= nucleus:
            break  # of all tokens, a short list of the best already holds the nucleus
    # A token stays if those before it weigh less than the nucleus; the first always does.
    keep = torch.cat((cumulative.new_zeros(1), cumulative[:-1])) < nucleus
    keep &= weights >= sampling.min_p
    keep[0] = True
    ids = ids[keep].sort().values
    return ids, weights_V[ids] / weights_V[ids].sum()


def _best(weights_V: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The ``width`` most likely tokens, best first, ties by id; whole-vocabulary sort only when it is asked for."""
    if width < len(weights_V):
        floor = torch.topk(weights_V, width).values[-1]
        ids = torch.nonzero(weights_V >= floor).flatten()
    else:
        ids = torch.arange(len(weights_V), device=weights_V.device)
    order = torch.sort(weights_V[ids], descending=True, stable=True).indices[:width]
    return ids[order], weights_V[ids[order]]


class Sampler:
    """One request's source of tokens: its settings and its own random stream.

    ``copy`` numbers the completions of one request (n > 1): same seed, different streams,
    and number 0 is what the request alone would draw.
    """

    def __init__(self, sampling: Sampling, copy: int = 0) -> None:
        self.sampling = sampling
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        self._generator = torch.Generator().manual_seed((seed + copy * 0x9E3779B97F4A7C15) % 2**63)
        self._drawn: list[float] = []  # the next ones of its stream, last first

    def choose(self, logits_V: Tensor, seen: Sequence[int] = ()) -> int:
        """Draw the next token. One uniform number is used per token, whatever the filters leave; none if greedy."""
        ids, probs = _candidates(_checked(tempered(logits_V, self.sampling, seen)), self.sampling)
        if self.sampling.greedy:
            return int(ids[0])
        cumulative = probs.cumsum(-1)
        place = int(torch.searchsorted(cumulative, self.uniform() * cumulative[-1], right=True))
        return int(ids[min(place, len(ids) - 1)])

    def uniform(self) -> float:
        """The next number of its stream, in [0, 1)."""
        if not self._drawn:  # a few at once: a call for each takes longer than drawing it
            self._drawn = torch.rand(64, generator=self._generator, dtype=torch.float64, device="cpu").tolist()[::-1]
        return self._drawn.pop()

    def logprob(self, token_id: int, logits_V: Tensor, seen: Sequence[int] = ()) -> TokenLogprob | None:
        """The report that the settings ask for, or None."""
        if self.sampling.logprobs is None:
            return None
        if self.sampling.tempered_logprobs:
            logits_V = tempered(logits_V, self.sampling, seen)
        return token_logprob(logits_V, token_id, self.sampling.logprobs)


def token_logprob(logits_V: Tensor, token_id: int, top: int) -> TokenLogprob:
    """Log-softmax of one row at a token and at the ``top`` most likely ones (which may include it)."""
    return reported(logprob_numbers(logits_V, put(token_id, logits_V.device), top).tolist())


def logprob_numbers(logits_V: Tensor, token: Tensor, top: int) -> Tensor:
    """The same in numbers that may still be on their way: float64 ``[2 + 2 top]``, to be read by ``reported``.

    The token (int64 ``[]``), its log-probability, the most likely ids, and theirs.
    """
    logprobs_V = torch.log_softmax(logits_V.to(torch.float64), dim=-1)
    values, ids = torch.topk(logprobs_V, min(top, len(logprobs_V)))
    return torch.cat((token[None].to(torch.float64), logprobs_V.gather(-1, token[None]), ids.to(torch.float64), values))


def reported(numbers: Sequence[float]) -> TokenLogprob:
    """The report that ``logprob_numbers`` began."""
    token, logprob, *top = numbers
    half = len(top) // 2
    return TokenLogprob(int(token), logprob, tuple(zip(map(int, top[:half]), top[half:])))


def choose_batch(samplers: Sequence[Sampler], logits_BV: Tensor, seen: Sequence[Sequence[int]]) -> list[int]:
    """Next token of every row; plain greedy rows are taken together, the others one by one."""
    tops, best = logits_BV.max(dim=-1)
    finite, best = torch.isfinite(tops).tolist(), best.tolist()
    return [
        best[i]
        if sampler.sampling.greedy and sampler.sampling.repetition_penalty == 1 and finite[i]
        else sampler.choose(logits_BV[i], seen[i])
        for i, sampler in enumerate(samplers)
    ]
