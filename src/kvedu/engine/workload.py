"""Who asks what, and when: seeded workloads of token ids, the same for every engine and the simulator.

A workload is a list of arrivals, made of three choices: times, lengths, and what prompts have in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from statistics import NormalDist
from typing import Callable, Hashable, Sequence as Seq

from kvedu.errors import KveduError

Lengths = Callable[[Random], int]
"""Draws a number of tokens (or of turns), 1 or more."""


@dataclass(frozen=True)
class Arrival:
    """One request to come. ``time`` in seconds: of the clock, or from the end of request number ``after``.

    Requests are numbered by their place in the workload. ``reply_ids`` are the output that later turns take
    as given: a simulation yields them; a real model says what it likes.
    Raises ``KveduError`` for what is no request.
    """

    time: float
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    after: int | None = None
    reply_ids: tuple[int, ...] = ()
    priority: int = 0
    salt: Hashable = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.time) and self.time >= 0 and self.prompt_ids and self.max_new_tokens >= 1):
            raise KveduError(
                f"an arrival has a time of 0 s or later, a prompt and at least 1 token to make; got {self.time} s, "
                f"{len(self.prompt_ids)} prompt tokens, max_new_tokens={self.max_new_tokens}"
            )


def all_at_once(n: int) -> list[float]:
    """``n`` times, all 0."""
    return [0.0] * n


def poisson(n: int, per_second: float, seed: int = 0) -> list[float]:
    """Times of ``n`` arrivals that know nothing of each other, ``per_second`` on average: exponential gaps."""
    if not per_second > 0:
        raise KveduError(f"arrivals need a positive rate, not {per_second} a second")
    rng, now, times = Random(seed), 0.0, []
    for _ in range(n):
        now += rng.expovariate(per_second)
        times.append(now)
    return times


def bursts(n: int, size: int, gap_seconds: float) -> list[float]:
    """``n`` arrivals in bursts of ``size`` at the same moment, ``gap_seconds`` apart, the first at 0."""
    if size < 1 or gap_seconds < 0:
        raise KveduError(f"a burst has at least 1 request and no negative gap; got {size} requests, {gap_seconds} s")
    return [i // size * gap_seconds for i in range(n)]


def uniform(low: int, high: int) -> Lengths:
    """Every length from ``low`` to ``high``, both included, alike."""
    if not 1 <= low <= high:
        raise KveduError(f"lengths go from 1 or more upwards; got {low} to {high}")
    return lambda rng: rng.randint(low, high)


def lognormal(mean: float, sigma: float, longest: int | None = None) -> Lengths:
    """Many short, few long: what chat traces look like. ``mean`` tokens; ``sigma`` is the spread of the logarithm.

    Rounded, at least 1, at most ``longest``; a cut lowers the mean. The median is mean / exp(sigma^2 / 2).
    """
    if not (mean >= 1 and sigma >= 0):
        raise KveduError(f"lengths have a mean of at least 1 token and no negative spread; got {mean}, {sigma}")
    return Lognormal(mean / math.exp(sigma**2 / 2), sigma, longest)


@dataclass(frozen=True)
class Lognormal:
    """Lengths whose logarithm is normal: half of them below ``median``; rounded, at least 1, at most ``longest``."""

    median: float
    sigma: float
    longest: int | None = None

    def __post_init__(self) -> None:
        if not (self.median > 0 and self.sigma >= 0):
            raise KveduError(f"lengths have a positive median and no negative spread; got {self.median}, {self.sigma}")

    @property
    def mean(self) -> float:
        """Mean before rounding and cutting."""
        return self.median * math.exp(self.sigma**2 / 2)

    def quantile(self, share: float) -> float:
        """Length below which this share (0 to 1, both excluded) of them lies, before rounding and cutting."""
        return self.median * math.exp(self.sigma * NormalDist().inv_cdf(share))

    def __call__(self, rng: Random) -> int:
        length = max(1, round(rng.lognormvariate(math.log(self.median), self.sigma)))
        return length if self.longest is None else min(length, self.longest)


def bimodal(short: Lengths, long: Lengths, long_share: float) -> Lengths:
    """Two kinds of requests: ``long_share`` of them (0 to 1) long."""
    if not 0 <= long_share <= 1:
        raise KveduError(f"a share is between 0 and 1, not {long_share}")
    return lambda rng: (long if rng.random() < long_share else short)(rng)


def independent(
    times: Seq[float], prompt: Lengths, output: Lengths, *, shared_tokens: int = 0, shared_every: int = 1, seed: int = 0
) -> list[Arrival]:
    """One request per time. Every ``shared_every``-th one starts with the same system prompt of ``shared_tokens``.

    Drawn in this order: the system prompt; then, for each request, its own length, its own ids, its output length.
    """
    rng = Random(seed)
    system = _ids(rng, shared_tokens)
    arrivals = []
    for i, time in enumerate(times):
        own = _ids(rng, prompt(rng))
        prefix = system if i % shared_every == shared_every - 1 else ()
        arrivals.append(Arrival(time, prefix + own, output(rng)))
    return arrivals


def serving_mix(seed: int = 7) -> list[Arrival]:
    """The mix that the engine bench serves: 48 requests at once, every second one behind a shared 256-token prefix.

    Own part uniform in 16 ... 256 tokens, output in 16 ... 128; with seed 7 12,781 prompt and 3,693 output tokens.
    """
    return independent(
        all_at_once(48), uniform(16, 256), uniform(16, 128), shared_tokens=256, shared_every=2, seed=seed
    )


def conversations(
    starts: Seq[float],
    turns: Lengths,
    user: Lengths,
    reply: Lengths,
    *,
    system_tokens: Seq[int] = (0,),
    pause_seconds: float = 0.0,
    seed: int = 0,
) -> list[Arrival]:
    """Chats that begin at ``starts``; each turn's prompt is all that was said before and a new message.

    A turn comes after the reply to the one before has ended and, on average, ``pause_seconds`` more (exponential).
    ``system_tokens`` gives the lengths of the system prompts in use; each chat has one of them.
    """
    rng = Random(seed)
    systems = [_ids(rng, n) for n in system_tokens]
    arrivals: list[Arrival] = []
    for start in starts:
        history, time, before = rng.choice(systems), start, None
        for _ in range(turns(rng)):
            history += _ids(rng, user(rng))
            said = _ids(rng, reply(rng))
            arrivals.append(Arrival(time, history, len(said), before, said))
            history += said
            time = rng.expovariate(1 / pause_seconds) if pause_seconds else 0.0
            before = len(arrivals) - 1
    return arrivals


def agents(
    starts: Seq[float],
    calls: Lengths = uniform(3, 8),
    *,
    tool_tokens: Seq[int] = (1500, 900),
    result: Lengths = uniform(50, 400),
    action: Lengths = uniform(20, 80),
    tool_seconds: float = 1.0,
    seed: int = 0,
) -> list[Arrival]:
    """Agents: behind long tool definitions, the same for all of a kind, short actions and tool results alternate.

    A conversation whose system prompt is the tools' (one kind per entry of ``tool_tokens``) and whose user is
    the tool, which takes ``tool_seconds`` on average. The default lengths are made up, not fitted to a trace.
    """
    return conversations(
        starts, calls, result, action, system_tokens=tool_tokens, pause_seconds=tool_seconds, seed=seed
    )


def closed(arrivals: Seq[Arrival], clients: int, pause_seconds: float = 0.0) -> list[Arrival]:
    """The same requests under closed load: ``clients`` users, each of whom asks again when the answer has come.

    Request i waits for the end of request i - ``clients``. Raises ``KveduError`` for turns of conversations,
    which are such a load already.
    """
    if clients < 1 or any(arrival.after is not None for arrival in arrivals):
        raise KveduError(f"closed load wants at least 1 client (got {clients}) and requests that wait for no other")
    return [
        replace(arrival, time=pause_seconds, after=i - clients) if i >= clients else replace(arrival, time=0.0)
        for i, arrival in enumerate(arrivals)
    ]


def _ids(rng: Random, n: int) -> tuple[int, ...]:
    """Ordinary token ids: below any large vocabulary's end, above the special ones."""
    return tuple(rng.randint(100, 40000) for _ in range(n))
