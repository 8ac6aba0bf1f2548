"""How long a step takes on a machine that is only described: a plan in, seconds out."""

from __future__ import annotations

from functools import lru_cache
from typing import Callable

from kvedu.analysis.flops import prefill_cost
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.roofline import Hardware, dtype_bytes, time_bound
from kvedu.analysis.weights import matrix_parameters, weight_bytes
from kvedu.config import ModelConfig
from kvedu.engine.plan import Plan
from kvedu.errors import CacheFull
from kvedu.units import Cost

StepSeconds = Callable[[Plan], float]
"""Seconds that a step with at least one share takes; called before its tokens count as computed."""


def roofline_parts(config: ModelConfig, hw: Hardware, dtype: str = "bf16") -> Callable[[Plan], dict[str, float]]:
    """Seconds of a step's parts by the machine's limits: ``matrices``, ``attention``, ``head``.

    For each part the longer of compute and memory time, as ``analysis.cost.step_time``, for a ragged step: weights
    are read once for all, keys and values once per sequence, and the head runs on the rows that yield a token.
    """
    size, head = dtype_bytes(dtype), matrix_parameters(config)["head"]

    @lru_cache(maxsize=None)
    def matrices(tokens: int) -> float:
        parts = prefill_cost(config, tokens, bytes_per_element=size)
        return sum(time_bound(parts[name], hw, dtype) for name in ("projections", "mlp"))

    @lru_cache(maxsize=None)
    def attention(tokens: int, context: int) -> tuple[float, float]:
        part = prefill_cost(config, tokens, context, bytes_per_element=size)["attention"]
        return part.flops, part.bytes

    def seconds(plan: Plan) -> dict[str, float]:
        tokens = rows = 0
        flops = moved = 0.0
        for work in plan.work:
            more_flops, more_bytes = attention(work.tokens, work.context)
            flops += more_flops
            moved += more_bytes
            tokens += work.tokens
            rows += work.yields
        logits = Cost(2 * rows * head, size * ((head if rows else 0) + tokens * config.M))
        return {
            "matrices": matrices(tokens),
            "attention": time_bound(Cost(flops, moved), hw, dtype),
            "head": time_bound(logits, hw, dtype),
        }

    return seconds


def roofline_seconds(
    config: ModelConfig,
    hw: Hardware,
    dtype: str = "bf16",
    overhead_seconds: float = 0.0,
    host_bytes_per_second: float | None = None,
) -> StepSeconds:
    """Step times on a machine by its limits, part after part; a real step is slower still.

    ``overhead_seconds`` is added to each step; what is swapped goes over a link of ``host_bytes_per_second``
    (None: copies take no time).
    """
    parts = roofline_parts(config, hw, dtype)

    def seconds(plan: Plan) -> float:
        swapped = plan.swapped_bytes / host_bytes_per_second if host_bytes_per_second else 0.0
        return overhead_seconds + sum(parts(plan).values()) + swapped

    return seconds


def blocks_beside_weights(
    config: ModelConfig, hw: Hardware, page_size: int = 16, dtype: str = "bf16", usable: float = 0.9
) -> int:
    """Blocks that fit into the usable share of a machine's memory beside the weights. Raises ``CacheFull`` if none does."""
    left = usable * hw.memory - weight_bytes(config, dtype_bytes(dtype))
    blocks = int(left // (page_size * kv_bytes_per_token(config, dtype_bytes(dtype))))
    if blocks < 1:
        found = f"only {left / 1e9:.2f} GB are left" if left > 0 else f"{-left / 1e9:.2f} GB are missing already"
        raise CacheFull(
            f"{hw.name} has no room for one block of {page_size} tokens beside the weights; {found}. "
            "Try a smaller model, fewer bytes per element or a machine with more memory"
        )
    return blocks
