"""Eviction in numbers: what a cache spends on knowing whom to evict, and how a budget can be spread over the layers."""

from __future__ import annotations

from kvedu.analysis.shape import AttentionShape, shape_of
from kvedu.config import ModelConfig
from kvedu.errors import KveduError


def evidence_bytes(
    model: ModelConfig | AttentionShape, tokens: int, queries: int = 0, batch: int = 1, *, moments: bool = False
) -> int:
    """Bytes beside keys and values when each KV head holds ``tokens`` tokens of its own choice.

    4 bytes of position per token, layer and KV head, and 4 more for each of ``queries`` attention
    weights kept (0: the policy looks at none; 1: the last one or a sum). ``moments``: sums over the queries
    as well, 4 (D + D D) bytes per layer and query head, however many tokens. Raises ``KveduError`` for negative counts.

    >>> shape = AttentionShape(n_layers=30, n_heads=9, n_kv_heads=3, head_dim=64)
    >>> evidence_bytes(shape, tokens=512, queries=1)
    368640
    """
    if min(tokens, queries, batch) < 0:
        raise KveduError(f"tokens, queries and batch count things: {tokens}, {queries} and {batch} cannot be negative")
    shape = shape_of(model)
    sums = shape.n_layers * shape.n_heads * (shape.head_dim + shape.head_dim**2) if moments else 0
    return 4 * batch * ((1 + queries) * tokens * shape.n_layers * shape.n_kv_heads + sums)


def pyramid_budgets(n_layers: int, mean: int, beta: float = 20.0, least: int = 1) -> tuple[int, ...]:
    """Budgets that fall from the first layer to the last by equal steps, ``mean`` tokens a layer on average, to the token.

    The last layer gets mean / ``beta`` (at least ``least``), the first as much above the mean as the last is below it.
    Early layers look at many tokens, late ones at few. Raises ``KveduError`` for a mean below ``least``, a beta below 1.
    Source: Cai et al. 2024, PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling; their beta.

    >>> pyramid_budgets(5, mean=100)
    (195, 147, 100, 53, 5)
    """
    if n_layers < 1 or mean < least or least < 1 or beta < 1:
        raise KveduError(
            f"a pyramid has layers, a mean of at least {max(least, 1)} tokens and a beta of at least 1; got {n_layers} layers, "
            f"mean {mean}, beta {beta}"
        )
    last = max(mean / beta, least)
    step = 2 * (mean - last) / max(n_layers - 1, 1)
    ends = [round(sum(2 * mean - last - step * i for i in range(n))) for n in range(n_layers)] + [mean * n_layers]
    return tuple(after - before for before, after in zip(ends, ends[1:]))
