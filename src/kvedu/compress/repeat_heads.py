"""More KV heads for a trained model without changing what it says: the way back from GQA to MHA."""

from __future__ import annotations

from kvedu.compress.kv_heads import rewrite_kv_heads
from kvedu.errors import ConfigError
from kvedu.model.transformer import Transformer


def repeat_kv_heads(model: Transformer, n_kv_heads: int | None = None) -> Transformer:
    """A new model with ``n_kv_heads`` KV heads (None: one per query head, MHA), each old one repeated in place.

    Heads 0, 1 become 0, 0, 1, 1: never 0, 1, 0, 1. Every query head then meets the keys and values it met
    before, so the logits are equal up to rounding, and the cache is n_kv_heads / K times larger. It shows that
    GQA is MHA in which groups of heads are tied.

    Raises ``ConfigError`` unless K divides ``n_kv_heads`` and that divides H. Cost: a copy of the weights.
    """
    H, K = model.config.H, model.config.K
    n_kv_heads = H if n_kv_heads is None else n_kv_heads
    if n_kv_heads < 1 or n_kv_heads % K or H % n_kv_heads:
        fitting = ", ".join(str(k) for k in range(K, H + 1, K) if H % k == 0)
        raise ConfigError(
            f"{K} KV heads cannot be repeated into {n_kv_heads} for {H} query heads; choose one of {fitting} "
            "(to get fewer, use pool_kv_heads)"
        )
    return rewrite_kv_heads(model, n_kv_heads, lambda w_K: w_K.repeat_interleave(n_kv_heads // K, dim=0))
