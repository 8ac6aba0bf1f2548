"""Layers that read another layer's keys and values: fewer layers in the cache, whichever cache it is.

A model says so in its configuration (``ModelConfig.kv_source``); a layer that reads another's makes queries only.
Every cache holds the layers that have keys of their own (``config.kv_layers``) and knows nothing more, so sharing
goes with pages, codes, windows and eviction alike. Here are the two maps that are in use; ``compress.share_layers``
rewrites a model to one of them.
"""

from __future__ import annotations

from kvedu.errors import CacheError


def cross_layer(n_layers: int, sharing: int = 2) -> tuple[int, ...]:
    """Each run of ``sharing`` layers reads its first one's keys: the cache is that many times smaller.

    Raises ``CacheError`` for a run shorter than one layer.
    Source: Brandon et al. 2024, Reducing Transformer KV Cache Size with Cross-Layer Attention (CLA2, CLA3 …).

    >>> cross_layer(5, 2)
    (0, 0, 2, 2, 4)
    """
    _check(n_layers, sharing >= 1, f"a run of {sharing} layers cannot share; give 1 (nothing is shared) or more")
    return tuple(layer - layer % sharing for layer in range(n_layers))


def you_only_cache_once(n_layers: int, own: int | None = None) -> tuple[int, ...]:
    """The first ``own`` layers (half of them if None) have their own keys, all later ones read the next layer's.

    In the paper the first half uses windows, so that a text of any length is held once: set ``sliding_window`` and
    ``windowed_layers`` for that. Raises ``CacheError`` where nothing would be left to share or to be shared.
    Source: Sun et al. 2024, You Only Cache Once: Decoder-Decoder Architectures for Language Models (YOCO).

    >>> you_only_cache_once(6)
    (0, 1, 2, 3, 3, 3)
    """
    own = n_layers // 2 if own is None else own
    _check(n_layers, 0 <= own < n_layers, f"{own} of {n_layers} layers with keys of their own leave none to share one's")
    return tuple(min(layer, own) for layer in range(n_layers))


def _check(n_layers: int, sensible: bool, message: str) -> None:
    if n_layers < 1:
        raise CacheError(f"a model has at least 1 layer, not {n_layers}")
    if not sensible:
        raise CacheError(message)
