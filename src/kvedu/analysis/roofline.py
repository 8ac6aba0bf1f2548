"""The roofline: a step takes at least its FLOPs over the peak, and at least its bytes over the bandwidth.

time >= max(flops / peak, bytes / bandwidth). Which of the two is larger is decided by one number,
the arithmetic intensity (FLOPs per byte), and one limit of the machine, its ridge point
(peak / bandwidth). Source: Williams, Waterman and Patterson 2009.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Mapping

from kvedu.analysis.flops import decode_cost, prefill_cost, total
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.weights import weights_read
from kvedu.config import ModelConfig
from kvedu.errors import KveduError
from kvedu.units import Cost

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one element; for fewer bits see ``analysis.quantized``."""


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element. Raises ``KveduError`` for a name this room does not know."""
    if dtype not in DTYPE_BYTES:
        raise KveduError(f"dtype {dtype!r} is unknown here; known are {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


_FAR = 2**40  # searches stop here: longer than any prompt, larger than any batch


@dataclass(frozen=True)
class Hardware:
    """Limits of one machine: FLOP/s per dtype (dense, not sparse), bytes/s, bytes of memory.

    ``source`` says where the numbers are from, ``date`` when they were read or measured. Raises
    ``KveduError`` for rates that are not positive or dtypes that this room does not know.

    >>> chip = Hardware("chip", {"bf16": 100e12}, bandwidth=1e12, memory=24 * 10**9, source="made up", date="2026-11-29")
    >>> ridge_point(chip, "bf16")
    100.0
    """

    name: str
    flops: Mapping[str, float] = field(hash=False)
    bandwidth: float
    memory: int
    source: str
    date: str

    def __post_init__(self) -> None:
        unknown = [dtype for dtype in self.flops if dtype not in DTYPE_BYTES]
        if unknown or not self.flops:
            raise KveduError(f"{self.name}: rates for {unknown or 'no dtype'}; known are {', '.join(DTYPE_BYTES)}")
        for what, value in [*self.flops.items(), ("bandwidth", self.bandwidth), ("memory", self.memory)]:
            if not value > 0:
                raise KveduError(f"{self.name}: {what} must be positive, not {value}")

    def peak(self, dtype: str) -> float:
        """FLOP/s in this dtype. Raises ``KveduError`` naming the dtypes the machine has."""
        if dtype not in self.flops:
            raise KveduError(f"{self.name} has no {dtype} rate; it has {', '.join(self.flops)}")
        return self.flops[dtype]


def ridge_point(hw: Hardware, dtype: str) -> float:
    """FLOPs per byte from which the machine is bound by compute."""
    return hw.peak(dtype) / hw.bandwidth


def attainable(intensity: float, hw: Hardware, dtype: str) -> float:
    """FLOP/s that work of this intensity can reach at most: min(peak, intensity x bandwidth)."""
    return min(hw.peak(dtype), intensity * hw.bandwidth)


def time_bound(cost: Cost, hw: Hardware, dtype: str) -> float:
    """Seconds that the work takes at least, if compute and memory overlap perfectly.

    >>> from kvedu.analysis.hardware import hardware
    >>> round(1e3 * time_bound(Cost(flops=0, read=3.35e9), hardware("H100-SXM"), "bf16"), 3)    # milliseconds
    1.0
    """
    return max(cost.flops / hw.peak(dtype), cost.bytes / hw.bandwidth)


def bound_by(cost: Cost, hw: Hardware, dtype: str) -> str:
    """``"compute"`` or ``"memory"``: the longer of the two times (compute at the ridge itself)."""
    return "compute" if cost.flops / hw.peak(dtype) >= cost.bytes / hw.bandwidth else "memory"


def context_where_cache_equals_weights(
    config: ModelConfig, batch: int = 1, bytes_per_element: int = 2, kv_bytes_per_element: int | None = None
) -> int | None:
    """Smallest context at which a decode step reads at least as many bytes of cache as of weights.

    Below it decode is bound by reading weights, whatever the cache (claim A1.3 says the cache);
    above it by the cache. None if windows keep the cache smaller for ever.

    >>> from kvedu.analysis.known_models import known_model
    >>> [context_where_cache_equals_weights(known_model("SmolLM2-135M").config, batch=b) for b in (1, 16)]
    [11674, 730]
    """
    kv_size = bytes_per_element if kv_bytes_per_element is None else kv_bytes_per_element
    weights = weights_read(config, bytes_per_element)
    return _first(lambda context: kv_cache_bytes(config, context, batch, kv_size) >= weights)


def prompt_where_prefill_is_compute_bound(
    config: ModelConfig, hw: Hardware, dtype: str = "bf16", batch: int = 1
) -> int | None:
    """Shortest prompt whose prefill is bound by compute, by its whole cost; None if there is none.

    >>> from kvedu.analysis.hardware import hardware
    >>> from kvedu.analysis.known_models import known_model
    >>> prompt_where_prefill_is_compute_bound(known_model("Llama-3-8B").config, hardware("H100-SXM"))
    318
    """
    size = dtype_bytes(dtype)
    return _first(lambda tokens: bound_by(total(prefill_cost(config, tokens, 0, batch, size)), hw, dtype) == "compute")


def batch_where_decode_is_compute_bound(
    config: ModelConfig, hw: Hardware, context: int, dtype: str = "bf16"
) -> int | None:
    """Smallest batch whose decode step is bound by compute, or None.

    None is common: each sequence brings its own cache to read, so the intensity tends to a limit
    set by the context, however large the batch. Nothing is said about whether the batch fits in memory.

    >>> from kvedu.analysis.hardware import hardware
    >>> from kvedu.analysis.known_models import known_model
    >>> config, h100 = known_model("Llama-3-8B").config, hardware("H100-SXM")
    >>> [batch_where_decode_is_compute_bound(config, h100, context) for context in (128, 4096)]
    [442, None]
    """
    size = dtype_bytes(dtype)
    return _first(lambda batch: bound_by(total(decode_cost(config, context, batch, size)), hw, dtype) == "compute")


def _first(holds: Callable[[int], bool]) -> int | None:
    """Smallest n >= 1 for which a condition holds that stays true once it is."""
    high = 1
    while not holds(high):
        high *= 2
        if high > _FAR:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
