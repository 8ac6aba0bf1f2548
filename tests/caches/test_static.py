"""What only the preallocated cache promises: nothing moves, nothing leaks from one tenant of a slot to the next."""

import math

import pytest
import torch

from cache_cases import feed, kv
from kvedu import StaticCache
from kvedu.errors import CacheFull
from tiny import random_ids, tiny_config


def cache_of(slots=3, length=8):
    return StaticCache(tiny_config(L=1), max_sequences=slots, max_length=length)


def test_storage_never_moves():
    """C082: capacity and storage are the same before and after growth, rollback and reuse."""
    cache = cache_of()
    where = [x.data_ptr() for x in (*cache.k, *cache.v)]
    a, b = cache.add(), cache.add()
    feed(cache, {a: random_ids(8), b: random_ids(2)})
    cache.truncate(a, 1)
    cache.free(b)
    feed(cache, {a: random_ids(3)})
    assert [x.data_ptr() for x in (*cache.k, *cache.v)] == where and cache.k[0].shape == (3, 2, 8, 8)


@pytest.mark.parametrize("past, new, fits", [(0, 8, True), (0, 9, False), (7, 1, True), (7, 2, False), (8, 1, False)])
def test_full_is_refused_before_anything_is_written(past, new, fits):
    """C013: at the edge and just past it; a neighbour in the same step is untouched too."""
    cache = cache_of()
    seq, mate = cache.add(), cache.add()
    if past:
        feed(cache, {seq: random_ids(past)})
    before = [x.clone() for x in (*cache.k, *cache.v)]
    if fits:
        feed(cache, {mate: [1], seq: random_ids(new)})
        assert cache.room(seq) == 8 - past - new
        return
    with pytest.raises(CacheFull, match=f"has {past} tokens and brings {new}; a slot holds 8"):
        feed(cache, {mate: [1], seq: random_ids(new)})
    assert all(torch.equal(x, y) for x, y in zip(before, (*cache.k, *cache.v)))
    assert cache.length(mate) == 0 and cache.length(seq) == past


def test_slots_run_out():
    cache = cache_of(slots=2)
    cache.add()
    b = cache.add()
    for call in (cache.add, lambda: cache.fork(b)):
        with pytest.raises(CacheFull, match="all 2 slots are taken"):
            call()
    cache.free(b)
    cache.add()


def test_what_is_forgotten_is_cleared():
    """C013: after free, truncate and keep no old key is left where a longer neighbour's mask would pad over it."""
    cache = cache_of()
    a = cache.add()
    feed(cache, {a: random_ids(6)})
    cache.keep(a, [0, 2, 5])
    assert not cache.k[0][0, :, 3:].any() and not cache.v[0][0, :, 3:].any()
    cache.truncate(a, 1)
    assert not cache.k[0][0, :, 1:].any()
    cache.free(a)
    assert not any(x.any() for x in (*cache.k, *cache.v))


def test_one_broken_sequence_does_not_reach_its_neighbours():
    """NaN keys of one request stay its own, while it runs, after it was rolled back and after it was freed."""
    cache = cache_of()
    bad, good = cache.add(), cache.add()

    def attend(new):
        with cache.step({seq: 1 for seq in new}) as view:
            k, v = kv(cache.config, 0, [3] * len(new), view.positions.tolist())
            for row, seq in enumerate(new):
                if seq == bad:
                    k[row] = v[row] = math.nan
            view.append(0, k, v)
            return view.attend(0, torch.ones(len(new), cache.config.H, cache.config.D))

    feed(cache, {bad: random_ids(5), good: random_ids(2)})
    out = attend([bad, good])
    assert out[0].isnan().all() and out[1].isfinite().all()
    with pytest.raises(RuntimeError), cache.step({bad: 2}) as view:
        view.append(0, *(torch.full((2, 2, 8), math.nan) for _ in "kv"))
        raise RuntimeError
    cache.free(bad)
    short = cache.add()  # takes the freed slot, and is padded up to the longer neighbour
    assert attend([short, good]).isfinite().all()


def test_nothing_to_hold_is_refused():
    for sizes in (dict(max_sequences=0, max_length=4), dict(max_sequences=1, max_length=0)):
        with pytest.raises(CacheFull, match="needs room for something"):
            StaticCache(tiny_config(), **sizes)
