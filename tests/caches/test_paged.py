"""Pages: where each token lies, who shares what, and that every block comes back exactly once."""

import random

import pytest
import torch

from cache_cases import feed
from kvedu.caches.block_tables import BlockTables
from kvedu.caches.blocks import BlockPool
from kvedu.caches.paged import PagedCache
from kvedu.errors import CacheError, CacheFull
from test_cache_laws import assert_holds
from tiny import random_ids, tiny_config


def cache_of(n_pages=8, page_size=4, **kwargs):
    return PagedCache(tiny_config(L=1), n_pages=n_pages, page_size=page_size, **kwargs)


@pytest.mark.parametrize("prompt", [3, 4, 5])
def test_the_block_of_every_token(prompt):
    """C049: token t goes to entry t // 4; an entry is made exactly when t % 4 == 0; in the end ceil((P + N - 1) / 4)."""
    cache = cache_of()
    seq = cache.add()
    table = cache.tables.tables[seq]
    feed(cache, {seq: random_ids(prompt)})
    for t in range(prompt, prompt + 5):  # of 6 new tokens the last is never fed back
        before = len(table)
        with cache.step({seq: 1}) as view:
            assert view.slot_mapping.tolist() == [table[t // 4] * 4 + t % 4]
            assert len(table) - before == (t % 4 == 0)
            view.append(0, torch.ones(1, 2, 8), torch.ones(1, 2, 8))
    assert len(table) == {3: 2, 4: 3, 5: 3}[prompt]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("page_size", [1, 2, 3])
def test_forks_release_each_block_once(order, page_size):
    """C047: fork at 3 tokens, append 6 to both, free in either order: every block comes back once, no count below 0."""
    cache = cache_of(n_pages=32, page_size=page_size)
    parent = cache.add()
    feed(cache, {parent: [1, 2, 3]})
    child = cache.fork(parent)
    for t in range(6):
        feed(cache, {parent: [10 + t], child: [20 + t]})
    assert_holds(cache, parent, [1, 2, 3, *range(10, 16)])
    assert_holds(cache, child, [1, 2, 3, *range(20, 26)])
    pool, pair = cache.tables.pool, (parent, child)
    shared = set(cache.tables.tables[parent]) & set(cache.tables.tables[child])
    assert len(shared) == 3 // page_size and pool.in_use == sum(len(t) for t in cache.tables.tables.values()) - len(shared)
    for i in order:
        cache.free(pair[i])
        with pytest.raises(CacheError):
            cache.free(pair[i])
    assert pool.free == 32 and set(pool.references) == {0}


def test_copy_on_write_takes_as_few_blocks_as_it_can():
    """Of three sharers of a half-full page that all write, two copy and one writes in place; it fits with 2 free pages."""
    cache = cache_of(n_pages=3)
    a = cache.add()
    feed(cache, {a: [1, 2]})
    b, c = cache.fork(a), cache.fork(a)
    feed(cache, {a: [3], b: [4], c: [5]})
    for seq, last in ((a, 3), (b, 4), (c, 5)):
        assert_holds(cache, seq, [1, 2, last])


def test_a_step_that_does_not_fit_changes_nothing():
    cache = cache_of(n_pages=3)
    a, b = cache.add(), cache.add()
    feed(cache, {a: random_ids(4), b: random_ids(3)})
    tables = {seq: list(table) for seq, table in cache.tables.tables.items()}
    with pytest.raises(CacheFull, match="needs 2 more blocks of 4 tokens; 1 of 3 can be had"):
        feed(cache, {a: [1], b: [1, 2]})
    assert cache.tables.tables == tables and cache.tables.pool.free == 1
    feed(cache, {a: [1], b: [1]})


def test_room_counts_the_last_page_and_the_pool():
    cache = cache_of(n_pages=3)
    seq = cache.add()
    assert cache.room(seq) == 12
    feed(cache, {seq: random_ids(5)})
    assert cache.room(seq) == 7
    feed(cache, {seq: random_ids(7)})
    assert cache.room(seq) == 0


def test_pages_side_by_side_are_read_in_place():
    """A sequence whose pages follow each other is a view of the pool; a scattered one is copied, and is the same."""
    cache = cache_of()
    a, b = cache.add(), cache.add()
    feed(cache, {a: random_ids(8)})
    inside = cache._read(0, a, 8)[0]
    assert inside.untyped_storage().data_ptr() == cache.k[0].untyped_storage().data_ptr()
    feed(cache, {b: [7]})
    feed(cache, {a: [5]})
    outside = cache._read(0, a, 9)[0]
    assert outside.untyped_storage().data_ptr() != cache.k[0].untyped_storage().data_ptr()
    assert_holds(cache, a, [*random_ids(8), 5])


def test_a_budget_in_bytes():
    config = tiny_config()
    page = 2 * config.L * config.K * config.D * 4 * 16
    assert PagedCache.pages_within(config, 5 * page + 1) == 5
    assert PagedCache(config, n_pages=5).nbytes == 5 * page
    with pytest.raises(CacheFull, match="do not pay for one page"):
        PagedCache.pages_within(config, page - 1)


def test_pool_faults_are_refused():
    with pytest.raises(CacheError, match="0 blocks"):
        BlockPool(0, 4)
    pool = BlockPool(2, 4)
    block = pool.take()
    pool.release(block)
    with pytest.raises(CacheError, match="released more often"):
        pool.release(block)
    with pytest.raises(CacheError, match="nothing in it to share"):
        pool.share(block)
    pool.take(), pool.take()
    with pytest.raises(CacheFull, match="all 2 blocks are in use"):
        pool.take()


@pytest.mark.parametrize("size", [1, 3, 16])
def test_needed_is_what_reserve_takes(size):
    """Planning without tensors is exact: reserve takes as many blocks as needed() says, over random lives."""
    rng, tables, lengths = random.Random(size), BlockTables(BlockPool(400, size)), {}
    for seq in range(300):
        if lengths and rng.random() < 0.4:
            source = rng.choice(list(lengths))
            tables.open(seq, source)
            lengths[seq] = lengths[source]
        else:
            tables.open(seq)
            lengths[seq] = 0
        growth = {s: (lengths[s], rng.randint(1, 5)) for s in rng.sample(list(lengths), min(3, len(lengths)))}
        before, needed = tables.pool.available, tables.needed(growth)
        if needed > before:
            with pytest.raises(CacheFull):
                tables.reserve(growth)
            assert tables.pool.available == before
        else:
            tables.reserve(growth)
            assert before - tables.pool.available == needed
            for s, (start, new) in growth.items():
                lengths[s] = start + new
                slots = tables.slots(s, start, start + new)
                assert len(set(slots)) == new and all(tables.pool.references[slot // size] == 1 for slot in slots)
        while len(lengths) > 12:
            gone = rng.choice(list(lengths))
            tables.close(gone)
            del lengths[gone]
    for s in list(lengths):
        tables.close(s)
    assert tables.pool.free == 400
