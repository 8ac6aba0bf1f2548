"""Bytes that an evicting cache spends on knowing whom to evict."""

from __future__ import annotations

from kvedu.analysis.shape import AttentionShape, shape_of
from kvedu.config import ModelConfig
from kvedu.errors import KveduError


def evidence_bytes(model: ModelConfig | AttentionShape, tokens: int, queries: int = 0, batch: int = 1) -> int:
    """Bytes beside keys and values when each KV head holds ``tokens`` tokens of its own choice.

    4 bytes of position per token, layer and KV head, and 4 more for each of ``queries`` attention
    weights kept (0: the policy looks at none; 1: the last one or a sum). Raises ``KveduError`` for negative counts.

    >>> shape = AttentionShape(n_layers=30, n_heads=9, n_kv_heads=3, head_dim=64)
    >>> evidence_bytes(shape, tokens=512, queries=1)
    368640
    """
    if min(tokens, queries, batch) < 0:
        raise KveduError(f"tokens, queries and batch count things: {tokens}, {queries} and {batch} cannot be negative")
    shape = shape_of(model)
    return 4 * (1 + queries) * batch * tokens * shape.n_layers * shape.n_kv_heads
