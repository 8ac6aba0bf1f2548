"""Layers that read another layer's keys: the same tokens through every cache, fewer bytes, and maps that make sense."""

from dataclasses import replace

import pytest
import torch

from kvedu.analysis.flops import decode_cost, kv_projection_flops
from kvedu.analysis.memory import kv_cache_bytes, parameter_count
from kvedu.caches.concat import ConcatCache
from kvedu.caches.evicting import EvictingCache
from kvedu.caches.formats import integer
from kvedu.caches.none import NoCache
from kvedu.caches.paged import PagedCache
from kvedu.caches.quantized import QuantizedCache
from kvedu.caches.scores import h2o
from kvedu.caches.shared import cross_layer, you_only_cache_once
from kvedu.caches.static import StaticCache
from kvedu.caches.window import WindowCache
from kvedu.compress.share_layers import share_layers
from kvedu.config_json import config_from_json, config_to_json
from kvedu.errors import CacheError, ConfigError
from kvedu.model.loops import greedy_cached, greedy_uncached
from kvedu.model.weights import state_shapes
from tiny import random_ids, tiny_config, tiny_model, with_latents

MAPS = {"pairs": cross_layer(6), "threes": cross_layer(6, 3), "YOCO": you_only_cache_once(6), "one for all": cross_layer(6, 6)}
every_map = pytest.mark.parametrize("sources", MAPS.values(), ids=MAPS)


def plainly(model, ids):
    """Logits by the text of the rule: one layer after the other, each with the keys and values of its source."""
    from kvedu.kernels.attention import attention_reference
    from kvedu.kernels.rope import rotate_reference

    config, made = model.config, {}
    x, places, causal = model.embed(torch.tensor(ids)), torch.arange(len(ids)), torch.ones(len(ids), len(ids)).tril().bool()
    for i, block in enumerate(model.layers):
        y = block.attn_norm(x)
        heads = block.attn.qkv(y).unflatten(1, (-1, config.D))
        q = heads[:, : config.H]
        if config.kv_source[i] == i:
            made[i] = heads[:, config.H : config.H + config.K], heads[:, config.H + config.K :]
        else:
            assert heads.shape[1] == config.H, "a reader has no keys of its own"
        k, v = made[config.kv_source[i]]
        q, k = rotate_reference(q, places, config.rope), rotate_reference(k, places, config.rope)
        x = block.attn.out(attention_reference(q, k, v, causal).flatten(1), x)
        x = block.mlp(block.mlp_norm(x), x)
    return model.logits(x)


@every_map
@torch.inference_mode()
def test_a_reader_attends_to_its_source(sources):
    model = share_layers(tiny_model(tiny_config(L=6)), sources)
    ids, cache = random_ids(13), NoCache(model.config)
    with cache.step({cache.add(): 13}) as view:
        torch.testing.assert_close(model(torch.tensor(ids), view), plainly(model, ids), rtol=1e-4, atol=1e-4)


@every_map
@pytest.mark.parametrize("changes", [{}, {"qkv_bias": True, "qk_norm": True}], ids=str)
def test_every_cache_serves_it(sources, changes):
    """The tokens of the loop without a cache, from caches that hold only the layers that are read."""
    model = share_layers(tiny_model(tiny_config(L=6, **changes)), sources)
    config, own, prompt = model.config, len(set(sources)), random_ids(9)
    wanted = greedy_uncached(model, prompt, 16)
    assert len(set(wanted)) > 3
    caches = [ConcatCache(config), StaticCache(config, max_length=32), PagedCache(config, n_pages=8, page_size=4)]
    caches += [WindowCache(config, window=32), EvictingCache(config, budget=32, score=h2o)]
    for cache in caches:
        assert cache.n_layers == own and greedy_cached(model, prompt, 16, cache) == wanted
    cache = ConcatCache(config)
    seq = cache.add()
    with cache.step({seq: 9}) as view:
        model(torch.tensor(prompt), view)
    full = tiny_config(L=6, **changes)
    assert cache.nbytes == kv_cache_bytes(config, 9, bytes_per_element=4) == kv_cache_bytes(full, 9, bytes_per_element=4) * own // 6
    assert parameter_count(config) == sum(p.numel() for p in model.parameters()) < parameter_count(full)
    assert state_shapes(config) == {name: tuple(p.shape) for name, p in model.named_parameters()}


def test_sharing_goes_with_codes():
    """Half the layers, a quarter of the bits: the bytes multiply."""
    config = tiny_config(L=4, kv_source=cross_layer(4))
    cache = QuantizedCache(config, keys=integer(8, 8), values=integer(8, 8))
    seq, model = cache.add(), tiny_model(config)
    with cache.step({seq: 12}) as view:
        model(torch.tensor(random_ids(12)), view)
    format = integer(8, 8).sized
    assert cache.nbytes == kv_cache_bytes(config, 12, bytes_per_element=4, keys=format, values=format)


def test_cost():
    """Readers still read: traffic in a decode step is that of all layers, new bytes and projections those of the owners."""
    full, half = tiny_config(L=4), tiny_config(L=4, kv_source=cross_layer(4))
    a, b = (decode_cost(config, 100)["attention"] for config in (full, half))
    assert a.read == b.read and a.written == 2 * b.written and a.flops == b.flops
    assert kv_projection_flops(full, 5, 5, True) == 2 * kv_projection_flops(half, 5, 5, True)


def test_a_window_is_shared_too():
    """YOCO as in the paper: windows in the first half, one full layer for all others."""
    config = tiny_config(L=4, sliding_window=4, windowed_layers=(True, True, False, False), kv_source=you_only_cache_once(4))
    model, prompt = tiny_model(config), random_ids(9)
    wanted = greedy_uncached(model, prompt, 16)
    assert greedy_cached(model, prompt, 16, ConcatCache(config)) == wanted
    assert kv_cache_bytes(config, 100) == kv_cache_bytes(tiny_config(L=1), 100) + 2 * kv_cache_bytes(tiny_config(L=1), 4)


@pytest.mark.parametrize("sources, message", [
    ((0, 0, 1, 0), "layer 2 would read the keys of layer 1.*has its own"), ((0, 2, 2, 2), "layer 1 would read the keys of layer 2"),
    ((0, 0, 0), "3 entries for 4 layers"), ((0, -1, 2, 3), "layer 1 would read the keys of layer -1"),
])  # fmt: skip
def test_maps_that_cannot_be(sources, message):
    with pytest.raises(ConfigError, match=message):
        share_layers(tiny_model(tiny_config(L=4)), sources)


def test_refused():
    with pytest.raises(ConfigError, match="layer 1 reads the keys of layer 0 with a window of None over one of 4"):
        tiny_config(L=2, sliding_window=4, windowed_layers=(True, False), kv_source=(0, 0))
    model = share_layers(tiny_model(tiny_config(L=4)), cross_layer(4))
    with pytest.raises(ConfigError, match="share keys already"):
        share_layers(model, cross_layer(4))
    with pytest.raises(ConfigError, match="does not do with latents"):
        share_layers(tiny_model(with_latents(tiny_config(L=4))), cross_layer(4))
    for call, message in [
        (lambda: cross_layer(4, 0), "a run of 0 layers"), (lambda: cross_layer(0), "at least 1 layer"),
        (lambda: you_only_cache_once(4, 4), "4 of 4 layers with keys of their own leave none"),
    ]:  # fmt: skip
        with pytest.raises(CacheError, match=message):
            call()
    assert config_from_json(config_to_json(model.config)) == model.config
    assert replace(model.config, kv_source=None).kv_layers == (0, 1, 2, 3)
