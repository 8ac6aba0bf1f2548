"""Seconds: of one step by the roofline, and of a whole generation by adding its steps.

A generation's time is the exact sum of its steps' times. The times come from two functions,
seconds of a full pass over n tokens and seconds of a decode step at context S: by a datasheet
(``roofline_rates``) or by a few points measured on the machine at hand (``measured_rates``).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Callable, Iterable, Mapping

from kvedu.analysis.flops import prefill_cost, uncached_step_cost
from kvedu.analysis.roofline import Hardware, dtype_bytes, time_bound
from kvedu.config import ModelConfig
from kvedu.errors import KveduError
from kvedu.units import Cost

Seconds = Callable[[int], float]


@dataclass(frozen=True)
class Rates:
    """How long steps take, in seconds, as functions of a token count.

    ``forward(n)``: a full pass over n tokens, nothing cached before. ``decode(S)``: one new token per
    sequence after S cached ones. ``prefill(n)``: a full pass that fills the cache; ``forward`` if None.
    """

    forward: Seconds
    decode: Seconds
    prefill: Seconds | None = None


def step_time(
    config: ModelConfig,
    hw: Hardware,
    batch: int = 1,
    new_tokens: int = 1,
    context: int = 0,
    dtype: str = "bf16",
    kv_bytes_per_element: int | None = None,
    overhead: float = 0.0,
) -> float:
    """Seconds of one step: each part's roofline bound, one after another, plus a fixed overhead.

    ``context`` tokens are cached before the step. Parts (projections, attention, MLP, head) cannot
    overlap each other, so their bounds add. A real step is slower: datasheet peaks are never reached.

    >>> from kvedu.analysis.hardware import hardware
    >>> from kvedu.analysis.known_models import known_model
    >>> config, h100 = known_model("Llama-3-8B").config, hardware("H100-SXM")
    >>> [round(1e3 * step_time(config, h100, context=s), 2) for s in (0, 32768)]    # milliseconds
    [4.48, 5.76]
    """
    parts = prefill_cost(config, new_tokens, context, batch, dtype_bytes(dtype), kv_bytes_per_element)
    return overhead + _time(parts, hw, dtype)


def roofline_rates(
    config: ModelConfig, hw: Hardware, batch: int = 1, dtype: str = "bf16", overhead: float = 0.0
) -> Rates:
    """Step times predicted from a machine's limits; ``overhead`` seconds are added to every step."""
    size = dtype_bytes(dtype)
    return Rates(
        forward=lambda n: overhead + _time(uncached_step_cost(config, n, batch, size), hw, dtype),
        decode=lambda context: step_time(config, hw, batch, 1, context, dtype, overhead=overhead),
        prefill=lambda n: step_time(config, hw, batch, n, 0, dtype, overhead=overhead),
    )


def measured_rates(
    forward: Mapping[int, float], decode: Mapping[int, float], prefill: Mapping[int, float] | None = None
) -> Rates:
    """Step times interpolated from measurements: token count -> seconds.

    >>> rates = measured_rates(forward={100: 0.1, 300: 0.3}, decode={100: 0.01, 300: 0.02})
    >>> round(rates.forward(200), 3), round(rates.decode(150), 4)
    (0.2, 0.0125)
    """
    return Rates(interpolate(forward), interpolate(decode), interpolate(prefill) if prefill is not None else None)


def interpolate(points: Mapping[int, float]) -> Seconds:
    """Piecewise linear through measured points; never outside of them.

    A full pass is convex in n (weights + n projections + n^2 scores), so straight pieces lie a
    little above it: take points close enough. Raises ``KveduError`` for no points or times that are
    not positive, and, when called, for a count outside the measured range.
    """
    if not points or any(not seconds > 0 for seconds in points.values()):
        raise KveduError(f"interpolation needs at least one point and positive seconds, got {dict(points)}")
    xs = sorted(points)

    def seconds(n: int) -> float:
        if not xs[0] <= n <= xs[-1]:
            raise KveduError(f"measured from {xs[0]} to {xs[-1]} tokens, asked at {n}; measure a point there too")
        right = min(bisect_right(xs, n), len(xs) - 1)
        left = max(right - 1, 0)
        if left == right:
            return points[xs[right]]
        share = (n - xs[left]) / (xs[right] - xs[left])
        return points[xs[left]] * (1 - share) + points[xs[right]] * share

    return seconds


def generation_time(rates: Rates, prompt: int, new: int, cached: bool = True) -> float:
    """Seconds to turn ``prompt`` tokens into ``new`` more, the exact sum over all steps.

    Cached: prefill(prompt), then decode at contexts prompt ... prompt + new - 2. Uncached: full passes
    over prompt ... prompt + new - 1 tokens. The last token is sampled but never run.
    Raises ``KveduError`` for an empty prompt or no new token. Cost: O(new) calls.

    >>> rates = Rates(forward=lambda n: 0.001 * n, decode=lambda context: 0.002)
    >>> round(generation_time(rates, 10, 3, cached=False), 4), round(generation_time(rates, 10, 3), 4)
    (0.033, 0.014)
    """
    if prompt < 1 or new < 1:
        raise KveduError(f"a generation has at least 1 prompt token and 1 new one; got {prompt} and {new}")
    if not cached:
        return _sum(rates.forward(prompt + i) for i in range(new))
    return (rates.prefill or rates.forward)(prompt) + _sum(rates.decode(prompt + i) for i in range(new - 1))


def speedup_cached_over_uncached(rates: Rates, prompt: int, new: int) -> float:
    """How many times faster the loop with a cache is, for the whole generation.

    >>> rates = Rates(forward=lambda n: 0.001 * n, decode=lambda context: 0.002)
    >>> round(speedup_cached_over_uncached(rates, 10, 100), 1)
    28.6
    """
    return generation_time(rates, prompt, new, cached=False) / generation_time(rates, prompt, new, cached=True)


def _time(parts: Mapping[str, Cost], hw: Hardware, dtype: str) -> float:
    return _sum(time_bound(part, hw, dtype) for part in parts.values())


def _sum(values: Iterable[float]) -> float:
    return float(sum(values))
