"""Fewer KV heads for a trained model: merge neighbors into one (Ainslie et al. 2023).

Neighboring KV heads are the ones to merge, so that query head h still reads KV head ``h // G`` of
the new model, which holds what its old head ``h // G`` was merged into. The result has a cache
K / k times smaller, and is worse until it is trained on.
"""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from kvedu.compress.kv_heads import rewrite_kv_heads
from kvedu.errors import ConfigError
from kvedu.model.transformer import Transformer

Pool = Callable[[Tensor], Tensor]
"""How a group becomes one head: ``[k, group, ...]`` to ``[k, ...]``."""


def mean(w_KG: Tensor) -> Tensor:
    """The group's mean: the paper's choice, and the best of its three before and after uptraining."""
    return w_KG.mean(dim=1)


def first(w_KG: Tensor) -> Tensor:
    """The group's first head, the others dropped."""
    return w_KG[:, 0]


def fresh(seed: int) -> Pool:
    """New random heads of the same spread, as if nothing had been learned: the paper's control."""
    generator = torch.Generator().manual_seed(seed)

    def pool(w_KG: Tensor) -> Tensor:
        noise = torch.randn(w_KG[:, 0].shape, generator=generator)
        return noise.to(w_KG.device, w_KG.dtype) * w_KG.std()

    return pool


def pool_kv_heads(model: Transformer, n_kv_heads: int, pool: Pool = mean) -> Transformer:
    """A new model with ``n_kv_heads`` KV heads, each pooled from ``K / n_kv_heads`` neighbors.

    Weights and biases of K and V are pooled; queries, output and everything else are copied. Keys are
    pooled before they are rotated, which for the mean is the same as after (rotation is linear).
    The new model is plain (call ``pack`` for the fast path) and shares no memory with the old.

    Raises ``ConfigError`` if ``n_kv_heads`` does not divide K. Cost: a copy of the weights. Source:
    Ainslie et al. 2023, section 2.1; "our K and n_kv_heads are their H and G".
    """
    K = model.config.K
    if not isinstance(n_kv_heads, int) or n_kv_heads < 1 or K % n_kv_heads:
        divisors = ", ".join(str(k) for k in range(1, K + 1) if K % k == 0)
        raise ConfigError(
            f"{K} KV heads cannot be pooled into {n_kv_heads}: groups must be of one size, so choose one of {divisors} "
            "(to get more heads, use repeat_kv_heads)"
        )
    return rewrite_kv_heads(model, n_kv_heads, lambda w_K: pool(w_K.unflatten(0, (n_kv_heads, K // n_kv_heads))))
