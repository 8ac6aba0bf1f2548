"""What only the concatenating cache promises: a count of the bytes that it copies."""

import torch

from cache_cases import feed
from kvedu import ConcatCache, StaticCache
from tiny import random_ids, tiny_config


def test_bytes_copied_grow_with_the_square():
    """n single steps copy 0 + 1 + ... + (n - 1) tokens; one step of n copies none."""
    config = tiny_config()
    per_token = 2 * config.L * config.K * config.D * 4
    cache = ConcatCache(config)
    whole, single = cache.add(), cache.add()
    feed(cache, {whole: random_ids(20)})
    assert cache.bytes_copied == 0
    for token in random_ids(20):
        feed(cache, {single: [token]})
    assert cache.bytes_copied == per_token * 20 * 19 // 2


def test_a_fork_costs_nothing_until_it_grows():
    """Parent and child share storages, counted once; growing one leaves the other's alone."""
    cache = ConcatCache(tiny_config())
    seq = cache.add()
    feed(cache, {seq: random_ids(10)})
    held = cache.nbytes
    twin = cache.fork(seq)
    assert cache.nbytes == held
    feed(cache, {twin: [1]})
    assert cache.nbytes == held + held // 10 * 11
    cache.free(seq)
    assert cache.nbytes == held // 10 * 11


def test_layers_of_a_pipeline_stage():
    """A stage's cache holds its own layers only, and asks the config for its own layers' windows."""
    config = tiny_config(L=5, sliding_window=3, windowed_layers=(True, False, True, False, True))
    for make in (ConcatCache, lambda c, **kw: StaticCache(c, max_length=8, **kw)):
        cache = make(config, first_layer=3, n_layers=2)
        seq = cache.add()
        feed(cache, {seq: random_ids(4)})
        with cache.step({seq: 1}) as view:
            assert [view.window(0), view.window(1)] == [None, 3]
            for layer in range(2):
                view.append(layer, *torch.zeros(2, 1, config.K, config.D))
