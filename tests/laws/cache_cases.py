"""Every cache under the laws: a new one joins with one line in ``CACHES``."""

from __future__ import annotations

import tempfile
from typing import Callable

import torch
from torch import Tensor

from kvedu.caches.concat import ConcatCache
from kvedu.caches.contract import Cache
from kvedu.caches.evicting import EvictingCache
from kvedu.caches.formats import float8, integer, rotated, with_apart
from kvedu.caches.latent import LatentCache
from kvedu.caches.low_rank import Basis, LowRankCache
from kvedu.caches.none import NoCache
from kvedu.caches.offloaded import OffloadedCache
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.caches.paged_latent import PagedLatentCache
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.quantized import QuantizedCache
from kvedu.caches.scores import expected_attention, h2o, random, snapkv
from kvedu.caches.static import StaticCache
from kvedu.caches.streaming import StreamingCache
from kvedu.caches.window import WindowCache
from kvedu.config import ModelConfig
from tiny import tiny_config, with_latents, with_sharing

def uneven(config: ModelConfig) -> list[list[int]]:
    """A budget for each KV head of each layer, no two neighbors alike."""
    return [[4 + (layer + 2 * head) % 5 for head in range(config.K)] for layer in range(config.L)]


def some_bases(config: ModelConfig) -> list[Basis]:
    """Latents of 10 elements that keep a part of every key and value."""
    X, generator = config.K * (config.D + config.Dv), torch.Generator().manual_seed(4)
    bases = []
    for _ in range(config.L):
        down_XZ = torch.linalg.qr(torch.randn(X, 10, generator=generator))[0]
        bases.append(Basis(down_XZ, down_XZ.T.contiguous(), torch.randn(X, generator=generator)))
    return bases


CACHES: dict[str, Callable[..., Cache]] = {
    "none": NoCache,
    "concat": ConcatCache,
    "static": lambda config, **where: StaticCache(config, max_sequences=6, max_length=64, **where),
    "paged 1": lambda config, **where: PagedCache(config, n_pages=384, page_size=1, **where),
    "paged 4": lambda config, **where: PagedCache(config, n_pages=96, page_size=4, **where),
    "paged 16": lambda config, **where: PagedCache(config, n_pages=24, page_size=16, **where),
    "int8": lambda config, **where: QuantizedCache(config, keys=integer(8, 4), values=integer(8, 8, symmetric=True), residual=2, **where),
    "int4 rotated": lambda config, **where: QuantizedCache(config, keys=rotated(integer(4, 8)), values=integer(4, 4), residual=1, **where),
    "int4, channels apart": lambda config, **where: QuantizedCache(
        config, keys=with_apart(integer(4, 4), 1), values=integer(4, 8), apart=torch.ones(config.L, config.K, 1, dtype=torch.long),
        **where,
    ),
    "fp8": lambda config, **where: QuantizedCache(config, keys=float8("e4m3"), values=float8("e5m2", group=2, along="tokens"), **where),
    "latent": lambda config, **where: LatentCache(with_latents(config), **where),
    "paged latents": lambda config, **where: PagedLatentCache(with_latents(config), n_pages=96, page_size=4, **where),
    "latents in a window": lambda config, **where: WindowCache(with_latents(config), window=3, sinks=2, **where),
    "latents, streaming": lambda config, **where: StreamingCache(with_latents(config), window=3, sinks=2, **where),
    "offloaded": lambda config, **where: OffloadedCache(config, max_sequences=6, max_length=64, **where),
    "offloaded to disk": lambda config, **where: OffloadedCache(
        config, max_sequences=6, max_length=64, folder=tempfile.gettempdir(), **where
    ),
    "low rank": lambda config, **where: LowRankCache(config, bases=some_bases(config), **where),
    "concat, shared": lambda config, **where: ConcatCache(with_sharing(config), **where),
    "paged 4, shared": lambda config, **where: PagedCache(with_sharing(config, 3), n_pages=96, page_size=4, **where),
    "paged int8": lambda config, **where: PagedQuantizedCache(
        config, n_pages=96, page_size=4, format=KVFormat(integer(8, 4), integer(8, 8, symmetric=True)), **where
    ),
    "paged int4, tail": lambda config, **where: PagedQuantizedCache(
        config, n_pages=96, page_size=4, max_sequences=7, format=KVFormat(integer(4, 4, "tokens"), rotated(integer(4, 4)), residual=3),
        **where,
    ),
    "paged fp8, decoded": lambda config, **where: PagedQuantizedCache(
        config, n_pages=24, page_size=16, fused=False, max_sequences=7, format=KVFormat(rotated(float8()), float8("e5m2", 2, "tokens")),
        **where,
    ),
    "window": lambda config, **where: WindowCache(config, window=4, **where),
    "window, 2 sinks": lambda config, **where: WindowCache(config, window=3, sinks=2, **where),
    "streaming": lambda config, **where: StreamingCache(config, window=3, sinks=2, **where),
    "evicting": lambda config, **where: EvictingCache(config, budget=6, score=h2o, sinks=1, recent=2, **where),
    "evicting, no attention": lambda config, **where: EvictingCache(config, budget=5, score=random, **where),
    "evicting, budgets": lambda config, **where: EvictingCache(config, budget=uneven(config), score=h2o, recent=2, **where),
    "evicting, codes": lambda config, **where: EvictingCache(
        config, budget=6, score=h2o, keys=integer(8, 4), values=integer(4, 8), **where
    ),
    "evicting, expected": lambda config, **where: EvictingCache(config, budget=6, score=expected_attention(config.rope, 8), **where),
    "evicting latents": lambda config, **where: EvictingCache(with_latents(config), budget=6, score=snapkv, **where),
    "kivi": lambda config, **where: QuantizedCache.kivi(config, bits=2, group=4, residual=3, **where),
}
"""By name; each takes ``device`` and ``dtype`` as a cache does."""


def random_kv(config: ModelConfig, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Keys and values of ``n`` tokens; of latents the value is the last part of the key."""
    k_NKD, v_NKD = (torch.randn(n, config.K, width, generator=generator) for width in (config.D, config.Dv))
    return k_NKD, values_of(config, k_NKD, v_NKD)


def values_of(config: ModelConfig, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
    """What this model's values are: of absorbed latents the last part of the key, else numbers of their own, Dv wide."""
    absorbed = config.latent is not None and config.latent.absorbed
    return k_NKD[..., config.latent.rope_width :] if absorbed else v_NKD[..., : config.Dv]


def keeping_to(*laws: str) -> list[str]:
    """Caches that declare no exception to any of these laws."""
    return [name for name, make in CACHES.items() if not set(laws) & set(make(tiny_config()).exceptions)]


KEEPING = keeping_to("keeps every token", "keeps exact values")
"""Caches that hold exactly what they were given."""

PLAIN = [name for name in KEEPING if CACHES[name](tiny_config()).config == tiny_config()]
"""Of these the ones that serve a model as it comes; the others' cases are of models with latents or shared layers."""


def kv(config: ModelConfig, layer: int, tokens: list[int], positions: list[int]) -> tuple[Tensor, Tensor]:
    """Keys and values ``[N, K, D]`` that depend on token, position and layer only, so that any order of arrival can be checked."""
    rows = []
    for token, position in zip(tokens, positions):
        generator = torch.Generator().manual_seed(1_000_003 * token + 1_009 * position + layer)
        rows.append(torch.randn(2, config.K, config.D, generator=generator))
    both = torch.stack(rows) if rows else torch.zeros(0, 2, config.K, config.D)
    return both[:, 0], values_of(config, both[:, 0], both[:, 1])


def feed(cache: Cache, tokens: dict[int, list[int]], parents: dict[int, list[int]] | None = None) -> None:
    """One step that brings these tokens, without a model."""
    with cache.step({seq: len(new) for seq, new in tokens.items()}, parents) as view:
        flat, positions = [t for new in tokens.values() for t in new], view.positions.tolist()
        for layer in range(cache.n_layers):
            view.append(layer, *kv(cache.config, layer, flat, positions))


def contents(cache: Cache, seq: int, layer: int) -> tuple[Tensor, Tensor]:
    """Committed keys and values of a sequence, by the hook that ``gather`` reads through; no step, so nothing changes."""
    return cache._read(layer, seq, cache.length(seq))
