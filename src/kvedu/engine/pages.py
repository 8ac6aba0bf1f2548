"""The engine's cache: as many pages as the budget pays for, in full precision or in few bits."""

from __future__ import annotations

from typing import Callable

from kvedu.caches.blocks import Reuse
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.caches.paged_latent import PagedLatentCache
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.errors import CacheFull
from kvedu.model.transformer import Transformer


def paged_cache_for(
    model: Transformer,
    cache_bytes: int,
    page_size: int,
    reuse: Callable[[int], Reuse] | None,
    kv_format: KVFormat | None,
    max_running: int,
    spare: bool = False,
) -> PagedCache:
    """A cache of at most ``cache_bytes`` for a model; tails of a quantized one for ``max_running`` sequences, and a ``spare`` page
    for recorded steps, are paid from it too. Raises ``CacheFull`` where that pays for no page."""
    config, policy = model.config, None if reuse is None else reuse(page_size)
    where = {"dtype": model.dtype, "device": model.device}
    if kv_format is not None:
        return PagedQuantizedCache.within(
            config, cache_bytes, kv_format, page_size=page_size, reuse=policy, max_sequences=max_running, spare=spare, **where
        )
    kind = PagedLatentCache if config.latent is not None and config.latent.absorbed else PagedCache
    n_pages = kind.pages_within(config, cache_bytes, page_size, model.dtype)
    if spare and n_pages < 2:
        raise CacheFull(f"{cache_bytes} bytes pay for one page of {page_size} tokens, and a recorded step needs a spare one; give twice as many")
    return kind(config, n_pages=n_pages - spare, page_size=page_size, reuse=policy, spare=spare, **where)
