"""Rewrite the K and V projections of every layer: what pooling and repeating heads have in common."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from kvedu.compress.plain_state import plain_state
from kvedu.model.load import build
from kvedu.model.transformer import Transformer

Rewrite = Callable[[Tensor], Tensor]
"""From the old KV heads' projections ``[K, ...]`` to the new ones' ``[k, ...]``."""


def rewrite_kv_heads(model: Transformer, n_kv_heads: int, rewrite: Rewrite) -> Transformer:
    """A new model with ``n_kv_heads`` KV heads, whose K and V projections are ``rewrite`` of the old.

    The fused matrix ``qkv`` has (H + 2 K) D rows: H heads of queries, K of keys, K of values. Weights
    ``[K, D, M]`` and biases ``[K, D]`` are rewritten alike; queries, output and the per-head norms, which
    all heads share, stay as they are. The model given is not changed.
    """
    H, K, D = model.config.H, model.config.K, model.config.D
    state = plain_state(model)
    for name in [name for name in state if ".qkv." in name]:
        q_HD, k_KD, v_KD = state[name].unflatten(0, (H + 2 * K, D)).split((H, K, K))
        state[name] = torch.cat((q_HD, rewrite(k_KD), rewrite(v_KD))).flatten(0, 1)
    rewritten = build(model.config.with_kv_heads(n_kv_heads), state)
    rewritten.tokenizer = model.tokenizer
    return rewritten
