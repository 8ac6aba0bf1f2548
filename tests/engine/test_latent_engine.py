"""The engine serves a model with latent attention from pages of latents: same tokens as alone, whatever else happens."""

from __future__ import annotations

import pytest
import torch

from kvedu.caches.paged_latent import PagedLatentCache
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.engine.engine import Engine
from kvedu.engine.preempt import Swap
from kvedu.engine.trace import Preempted, Trace
from kvedu.errors import CacheError
from kvedu.model.load import load
from engines import assert_all_came_back, engine_of, page_bytes, solo
from tiny import random_ids, tiny_config, tiny_model, with_latents
from tiny_checkpoints import LATENT_MAKERS

PAGE = 4


@pytest.mark.parametrize("family", LATENT_MAKERS)
@pytest.mark.parametrize("reuse", [None, HashReuse, RadixReuse], ids=["no reuse", "hash", "radix"])
@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
def test_same_tokens_as_alone(tmp_path, family, reuse, swap):
    """Shared beginnings, chunks, and a pool so small that sequences are sent back on the way."""
    model = load(LATENT_MAKERS[family](tmp_path)[0], device="cpu")
    start = random_ids(9, V=model.config.V)
    prompts = [[*start, *random_ids(n, seed=n, V=model.config.V)] for n in (1, 3, 6, 7)]
    trace = Trace()
    settings = {"preempt": Swap(40 * page_bytes(model, PAGE))} if swap else {}
    engine = engine_of(model, 14, PAGE, reuse=reuse, token_budget=9, trace=trace, **settings)
    assert type(engine.cache) is PagedLatentCache and engine.cache.nbytes == 14 * page_bytes(model, PAGE)
    found = engine.generate(prompts, max_new_tokens=14, ignore_eos=True)
    for prompt, completion in zip(prompts, found):
        assert completion.token_ids == solo(model, prompt, 14)
    sent_back = [event for event in trace.events if isinstance(event, Preempted)]
    assert sent_back and any(event.swapped_bytes for event in sent_back) is swap
    assert_all_came_back(engine)


def test_bytes_of_deepseek_v3():
    """C038: 61 layers, a latent of 512 and 64 rotated elements in bf16 are 70,272 bytes a token; pages hold them once."""
    config = with_latents(tiny_config(n_layers=61), width=512, rope_width=64)
    cache = PagedLatentCache(config, n_pages=3, page_size=16, dtype=torch.bfloat16)
    assert cache.nbytes == 3 * 16 * 70_272
    assert PagedLatentCache.pages_within(config, 7 * 16 * 70_272 + 5, 16, torch.bfloat16) == 7


def test_values_are_the_keys_own_memory():
    config = with_latents(tiny_config())
    cache = PagedLatentCache(config, n_pages=2, page_size=PAGE)
    assert all(v.untyped_storage().data_ptr() == k.untyped_storage().data_ptr() for k, v in zip(cache.k, cache.v))
    assert [x.data_ptr() for x in cache.page_tensors] == [k.data_ptr() for k in cache.k]


def test_what_does_not_fit():
    for config, words in (
        (tiny_config(), "this is GQA; use ConcatCache"), (with_latents(tiny_config(), absorbed=False), "written out"),
    ):  # fmt: skip
        with pytest.raises(CacheError, match=words):
            PagedLatentCache(config, n_pages=2)
    with pytest.raises(CacheError, match="have no spare page"):
        PagedLatentCache(with_latents(tiny_config()), n_pages=2, spare=True)
    with pytest.raises(CacheError, match="one width"):
        Engine(tiny_model(with_latents(tiny_config(), absorbed=False)), cache_bytes=2**20)
