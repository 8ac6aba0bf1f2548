"""Numbers of a run: pure functions of its trace, all times in seconds.

A token exists from the end of the step that sampled it, or that verified it: a round of speculation gives several at
once. The first token of every copy of a request comes with the step that ends its prompt, which has one share for all
of them. What speculation did is in ``guess_metrics``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Callable, Sequence as Seq

from kvedu.engine.trace import Admitted, Arrived, Ended, Preempted, Stepped, Trace, Verified
from kvedu.errors import KveduError


@dataclass(frozen=True)
class Timing:
    """When what happened to one completion. None for what has not happened, or has no meaning."""

    request: int
    copy: int
    arrived_seconds: float
    admitted_seconds: float | None
    token_seconds: tuple[float, ...]
    ended_seconds: float | None = None
    reason: str | None = None

    @property
    def queue_seconds(self) -> float | None:
        """From arrival to the first admission."""
        return None if self.admitted_seconds is None else self.admitted_seconds - self.arrived_seconds

    @property
    def ttft_seconds(self) -> float | None:
        """Time to first token, counted from the arrival: waiting and prefill."""
        return self.token_seconds[0] - self.arrived_seconds if self.token_seconds else None

    @property
    def itl_seconds(self) -> tuple[float, ...]:
        """Inter-token latencies: the time between each token and the next."""
        return tuple(b - a for a, b in zip(self.token_seconds, self.token_seconds[1:]))

    @property
    def tpot_seconds(self) -> float | None:
        """Time per output token after the first: the mean of the inter-token latencies."""
        n = len(self.token_seconds)
        return (self.token_seconds[-1] - self.token_seconds[0]) / (n - 1) if n > 1 else None

    @property
    def latency_seconds(self) -> float | None:
        """From arrival to the end."""
        return None if self.ended_seconds is None else self.ended_seconds - self.arrived_seconds

    @property
    def complete(self) -> bool:
        """Whether it ended as it should: by a stop or by its length."""
        return self.reason in ("stop", "length")


def timings(trace: Trace) -> list[Timing]:
    """One ``Timing`` per completion, by request and copy; those that have not ended are among them."""
    arrived = {event.request: event for event in trace.of(Arrived)}
    admitted: dict[int, float] = {}
    for event in trace.of(Admitted):
        admitted.setdefault(event.request, event.time)
    tokens: dict[tuple[int, int], list[float]] = {(request, 0): [] for request in arrived}
    for event in trace.events:
        if isinstance(event, Verified):  # one of them is the share's
            tokens[event.request, event.copy] += [event.time] * (event.emitted - 1)
        for share in event.shares if isinstance(event, Stepped) else ():
            if share.sampled:
                if not tokens[share.request, 0]:  # the prompt has ended, and the copies begin
                    for copy in range(1, arrived[share.request].copies):
                        tokens[share.request, copy] = [event.time]
                tokens[share.request, share.copy].append(event.time)
    ended = {(event.request, event.copy): event for event in trace.of(Ended)}
    rows = []
    for (request, copy), times in sorted(tokens.items()):
        end = ended.get((request, copy))
        # A share that was to sample, but whose logits were broken, has no token.
        times = times if end is None else times[: end.new_tokens]
        rows.append(
            Timing(
                request, copy, arrived[request].time, admitted.get(request), tuple(times),
                end and end.time, end and end.reason,
            )
        )  # fmt: skip
    return rows


def span_seconds(trace: Trace) -> float:
    """From the first arrival to the last event. Raises ``KveduError`` if no time passes."""
    times = [event.time for event in trace.events]
    arrivals = [event.time for event in trace.of(Arrived)]
    if not arrivals or max(times) <= min(arrivals):
        raise KveduError("the trace spans no time: rates need a request that arrived and at least one step after it")
    return max(times) - min(arrivals)


def output_tokens_per_second(trace: Trace) -> float:
    """Sampled tokens, of all completions, over ``span_seconds``."""
    return sum(len(timing.token_seconds) for timing in timings(trace)) / span_seconds(trace)


def goodput_per_second(trace: Trace, ttft_limit_seconds: float, tpot_limit_seconds: float) -> float:
    """Completions per second that ended as they should and met both limits (Zhong et al. 2024, DistServe).

    A completion of a single token has no TPOT to miss.
    """
    good = [
        timing
        for timing in timings(trace)
        if timing.complete
        and (timing.ttft_seconds or 0.0) <= ttft_limit_seconds
        and (timing.tpot_seconds or 0.0) <= tpot_limit_seconds
    ]
    return len(good) / span_seconds(trace)


def slot_utilization(trace: Trace, max_running: int) -> float:
    """Sequences computed in a step over ``max_running``, weighted by the steps' times.

    Time between steps, when nobody is there, is left out.
    """
    return _time_weighted(trace, lambda step: len(step.shares) / max_running)


def block_utilization(trace: Trace) -> float:
    """Blocks that sequences refer to over all blocks, after each step, weighted by its time.

    Blocks that are only remembered are not in use.
    """
    return _time_weighted(trace, lambda s: s.blocks_in_use / (s.blocks_in_use + s.blocks_evictable + s.blocks_free))


def _time_weighted(trace: Trace, value: Callable[[Stepped], float]) -> float:
    steps = trace.of(Stepped)
    seconds = sum(step.time - step.start for step in steps)
    if seconds <= 0:
        raise KveduError(f"{len(steps)} steps took {seconds} seconds: nothing to take a mean over")
    return sum(value(step) * (step.time - step.start) for step in steps) / seconds


def preemptions(trace: Trace) -> int:
    """How many times a running sequence was sent back to wait."""
    return len(trace.of(Preempted))


def swapped_bytes(trace: Trace) -> tuple[int, int]:
    """Bytes copied to host memory and back by preemption."""
    out, back = (sum(event.swapped_bytes or 0 for event in trace.of(kind)) for kind in (Preempted, Admitted))
    return out, back


@dataclass(frozen=True)
class PrefixHits:
    """Prompt tokens found in the cache at the first admission; prompts with no whole page to find are apart."""

    prompt_tokens: int
    reused_tokens: int
    too_short: int
    """Requests whose prompt, without its last token (always computed), does not fill one page."""
    too_short_tokens: int

    @property
    def rate(self) -> float:
        """Reused over prompt tokens, of the prompts that are long enough; 0 if there are none."""
        return self.reused_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def prefix_hits(trace: Trace, page_size: int) -> PrefixHits:
    """What prefix reuse found, on first admissions only: to find one's own pages after preemption is no hit."""
    prompts = {event.request: event.prompt_tokens for event in trace.of(Arrived)}
    counts: dict[str, int] = defaultdict(int)
    for event in trace.of(Admitted):
        if event.again:
            continue
        tokens = prompts[event.request]
        if tokens <= page_size:
            counts["too_short"] += 1
            counts["too_short_tokens"] += tokens
        else:
            counts["prompt_tokens"] += tokens
            counts["reused_tokens"] += event.reused
    return PrefixHits(*(counts[name] for name in ("prompt_tokens", "reused_tokens", "too_short", "too_short_tokens")))


def percentile(values: Seq[float], percent: float) -> float:
    """The value below which ``percent`` of the values lie, interpolated between neighbors as NumPy does.

    >>> percentile([1, 2, 3, 4], 50), percentile([1, 2, 3, 4], 99)
    (2.5, 3.97)
    """
    if not values or not 0 <= percent <= 100:
        raise KveduError(f"a percentile is at 0 to 100 percent of at least one value; got {percent} of {len(values)}")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    left = int(place)
    right = min(left + 1, len(ordered) - 1)
    return ordered[left] + (ordered[right] - ordered[left]) * (place - left)
