"""Pages copied to host memory and back: the same keys and values, each shared page once, nothing lost or kept."""

import random

import pytest
import torch

from cache_cases import feed
from kvedu.caches.paged import PagedCache
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.errors import CacheError, CacheFull
from test_cache_laws import assert_holds
from tiny import random_ids, tiny_config


def cache_of(n_pages=8, size=4, reuse=None):
    cache = PagedCache(tiny_config(L=2), n_pages=n_pages, page_size=size, reuse=reuse and reuse(size))
    for x in cache.page_tensors:
        x.fill_(float("nan"))  # whoever reads what nobody wrote sees it
    return cache


def space_of(cache, n_pages=8):
    space = cache.swap_space(n_pages * cache.nbytes // cache.n_blocks)
    for x in space.host:
        x.fill_(float("nan"))
    return space


@pytest.mark.parametrize("size", [1, 3, 4])
def test_it_comes_back_as_it_was(size):
    """Out, its pages overwritten by another, back into other pages: the same tokens; then it grows."""
    cache = cache_of(n_pages=24 // size, size=size)
    space = space_of(cache, 24)
    seq = cache.add()
    feed(cache, {seq: random_ids(10)})
    parked, out_bytes = space.out(seq)
    assert cache.sequences == () and cache.tables.pool.free == 24 // size
    assert out_bytes == -(-10 // size) * space.page_bytes == (24 - space.pages.free) * space.page_bytes
    other = cache.add()
    feed(cache, {other: random_ids(12, seed=5)})
    assert space.needed(parked) == -(-10 // size)
    back, in_bytes = space.back(parked)
    assert in_bytes == out_bytes and space.pages.free == 24
    assert_holds(cache, back, random_ids(10))
    feed(cache, {back: [7, 8]})
    assert_holds(cache, back, [*random_ids(10), 7, 8])
    assert_holds(cache, other, random_ids(12, seed=5))


def test_sharers_are_copied_once_and_share_again():
    """Two forks with two full pages in common and a tail each: 4 page copies out, not 6, and 4 back."""
    cache = cache_of()
    space = space_of(cache)
    a = cache.add()
    feed(cache, {a: random_ids(9)})
    b = cache.fork(a)
    feed(cache, {a: [1], b: [2]})
    (first, out_a), (second, out_b) = space.out(a), space.out(b)
    assert (out_a, out_b) == (3 * space.page_bytes, 1 * space.page_bytes)
    b, in_b = space.back(second)
    assert space.needed(first) == 1  # two of its pages lie where b uses them
    a, in_a = space.back(first)
    assert (in_b, in_a) == (3 * space.page_bytes, 1 * space.page_bytes)
    assert cache.tables.pool.in_use == 4 and space.pages.free == 8
    assert_holds(cache, a, [*random_ids(9), 1])
    assert_holds(cache, b, [*random_ids(9), 2])


def test_a_sharer_that_stays_writes_in_place_and_changes_nothing_of_it():
    """The tail page that was shared is the stayer's own now; what it writes there must not come back with the other."""
    cache = cache_of()
    space = space_of(cache)
    a = cache.add()
    feed(cache, {a: random_ids(6)})
    b = cache.fork(a)
    parked, _ = space.out(a)
    feed(cache, {b: [90, 91]})  # fills the page that both had
    a, copied = space.back(parked)
    assert copied == space.page_bytes  # the first page is shared again, the tail is its own
    feed(cache, {a: [50, 51]})
    assert_holds(cache, a, [*random_ids(6), 50, 51])
    assert_holds(cache, b, [*random_ids(6), 90, 91])


@pytest.mark.parametrize("cut", [3, 4, 6])
def test_a_full_page_that_is_written_over_is_no_longer_the_same(cut):
    """The stayer is cut back and goes another way through a page that the other shared with it."""
    cache = cache_of()
    space = space_of(cache)
    a = cache.add()
    feed(cache, {a: random_ids(8)})
    b = cache.fork(a)
    parked, _ = space.out(a)
    cache.truncate(b, cut)
    feed(cache, {b: [90] * 5})
    a, _ = space.back(parked)
    assert_holds(cache, a, random_ids(8))
    assert_holds(cache, b, [*random_ids(8)[:cut], *[90] * 5])


@pytest.mark.parametrize("reuse", [HashReuse, RadixReuse])
def test_what_is_still_remembered_is_not_copied_back(reuse):
    """Pages that the policy kept are shared again; after they were evicted, they are copied."""
    cache = cache_of(n_pages=4, reuse=reuse)
    space = space_of(cache)
    for evict, copied in ((False, 0), (True, 2)):
        seq, _ = cache.add_prefix(random_ids(8))
        feed(cache, {seq: random_ids(8)[cache.length(seq) :]})
        cache.remember(seq, random_ids(8))
        parked, out = space.out(seq)
        assert out == 2 * space.page_bytes and cache.tables.pool.evictable == 2
        if evict:
            other = cache.add()
            feed(cache, {other: random_ids(16, seed=4)})
            cache.free(other)
        assert space.needed(parked) == 2  # evictable ones count: they can no longer be had
        seq, back = space.back(parked)
        assert back == copied * space.page_bytes
        assert_holds(cache, seq, random_ids(8))
        cache.free(seq)
        assert cache.tables.pool.available == 4


def test_too_little_room_changes_nothing():
    cache = cache_of(n_pages=4)
    space = space_of(cache, 2)
    seq = cache.add()
    feed(cache, {seq: random_ids(9)})
    assert space.out(seq) is None and space.pages.free == 2
    assert_holds(cache, seq, random_ids(9))
    cache.truncate(seq, 8)
    parked, _ = space.out(seq)
    other = cache.add()
    feed(cache, {other: random_ids(12)})
    with pytest.raises(CacheFull, match="takes 2 blocks; 1 of 4"):
        space.back(parked)
    assert cache.sequences == (other,) and space.pages.free == 0
    cache.free(other)
    assert_holds(cache, space.back(parked)[0], random_ids(8))
    with pytest.raises(CacheError):
        space.out(99)


@pytest.mark.parametrize("reuse", [None, HashReuse, RadixReuse])
def test_a_long_random_life(reuse):
    """2,000 seeded operations a policy, with forks, cuts, parking and dropping in pools that are always too small."""
    rng = random.Random(11)
    cache = cache_of(n_pages=12, size=2, reuse=reuse)
    space = space_of(cache, 9)
    live, parked, full = {}, {}, 0
    for turn in range(2000):
        action = rng.choice(["open", "grow", "grow", "cut", "fork", "out", "out", "back", "drop", "close"])
        if action == "open" and len(live) < 4:
            tokens = [rng.randrange(2) for _ in range(rng.randint(1, 7))]
            seq, reused = cache.add_prefix(tokens)
            live[seq] = tokens[:reused]
        elif action == "back" and parked:
            one = rng.choice(list(parked))
            if space.needed(one) <= cache.available:
                live[space.back(one)[0]] = parked.pop(one)
            else:
                with pytest.raises(CacheFull):
                    space.back(one)
        elif action == "drop" and parked and rng.random() < 0.3:
            one = rng.choice(list(parked))
            space.drop(one)
            del parked[one]
        elif live:
            seq = rng.choice(list(live))
            if action == "grow":
                new = [rng.randrange(2) for _ in range(rng.randint(1, 3))]
                try:
                    feed(cache, {seq: new})
                    live[seq] = live[seq] + new
                    cache.remember(seq, live[seq])
                except CacheFull:
                    full += 1
            elif action == "cut":
                n = rng.randint(0, len(live[seq]))
                cache.truncate(seq, n)
                live[seq] = live[seq][:n]
            elif action == "fork" and len(live) < 5:
                live[cache.fork(seq)] = live[seq]
            elif action == "out":
                before = cache.tables.pool.in_use
                done = space.out(seq)
                if done is None:
                    full += 1
                    assert cache.tables.pool.in_use == before
                else:
                    parked[done[0]] = live.pop(seq)
            elif action == "close":
                cache.free(seq)
                del live[seq]
        users = [page for one in parked for page in one.pages]
        assert space.pages.free == 9 - len(set(users)) and all(space.pages._users[p] == users.count(p) for p in range(9))
        if turn % 10 == 0:
            for seq, tokens in live.items():
                assert_holds(cache, seq, tokens)
    assert full > 20 and len(parked) + len(live) > 0
    for seq in live:
        cache.free(seq)
    for one in parked:
        space.drop(one)
    assert cache.available == 12 and space.pages.free == 9 and not space.pages._content and not space.pages._page_of
