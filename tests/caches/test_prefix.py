"""Prefix reuse, by hash and by radix tree: what is reused is right, whatever collides, leaves or comes back."""

import random
from collections import Counter

import pytest

from cache_cases import feed
from kvedu.caches.paged import PagedCache
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.errors import CacheError, CacheFull
from test_cache_laws import assert_holds
from tiny import random_ids, tiny_config

POLICIES = {
    "hash": HashReuse,
    "radix": RadixReuse,
    "hash, all collide": lambda size: HashReuse(size, hash_=lambda key: 0),
    "hash mod 2": lambda size: HashReuse(size, hash_=lambda key: hash(key) % 2),
}
every_policy = pytest.mark.parametrize("name", POLICIES)


def cache_of(name, n_pages=16, size=4):
    return PagedCache(tiny_config(L=1), n_pages=n_pages, page_size=size, reuse=POLICIES[name](size))


def run(cache, tokens, salt=None):
    """Serve a prompt: reuse what is remembered, compute the rest, check all of it, remember it, leave. Returns tokens reused."""
    seq, reused = cache.add_prefix(tokens, salt)
    feed(cache, {seq: tokens[reused:]})
    assert_holds(cache, seq, tokens)
    cache.remember(seq, tokens, salt)
    cache.free(seq)
    return reused


@every_policy
@pytest.mark.parametrize("n", [4, 8, 9])
def test_one_token_at_least_is_computed(name, n):
    """C051: prompts that are whole pages, sent twice and then one token longer: at most P - 1 tokens are reused."""
    cache, tokens = cache_of(name), random_ids(n)
    assert run(cache, tokens) == 0
    assert run(cache, tokens) == (n - 1) // 4 * 4
    assert run(cache, [*tokens, 5]) == n // 4 * 4


@every_policy
def test_a_reused_block_forgets_its_old_content(name):
    """C052: 3 pages; A leaves, B overwrites them, A comes again: nothing of B is served to A."""
    cache = cache_of(name, n_pages=3)
    a, b = random_ids(8), random_ids(12, seed=9)
    assert [run(cache, t) for t in (a, b, a, a)] == [0, 0, 0, 4]


@every_policy
def test_same_block_after_different_histories(name):
    """C054: the same second page after two first pages is two contents; a hit needs the whole history."""
    cache = cache_of(name)
    first, second, same = [1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]
    assert [run(cache, t + [0]) for t in (first + same, second + same)] == [0, 0]
    assert [run(cache, t + [0]) for t in (first + same, second + same, same)] == [8, 8, 0]


@every_policy
def test_a_salt_keeps_tenants_apart(name):
    cache, tokens = cache_of(name), random_ids(9)
    assert run(cache, tokens, "a") == 0 and run(cache, tokens, "b") == 0
    assert run(cache, tokens, "a") == 8 and run(cache, tokens) == 0


@every_policy
def test_running_sequences_share_and_are_never_evicted(name):
    """Two that run share the prefix's pages once; a third that needs more than is left is refused, and they are unharmed."""
    cache, prefix = cache_of(name, n_pages=5), random_ids(8)
    run(cache, [*prefix, 1])
    (a, reused_a), (b, reused_b) = cache.add_prefix([*prefix, 2]), cache.add_prefix([*prefix, 3])
    assert reused_a == reused_b == 8
    feed(cache, {a: [2], b: [3]})
    assert cache.tables.pool.in_use == 4
    c, _ = cache.add_prefix(random_ids(8, seed=5))
    with pytest.raises(CacheFull):
        feed(cache, {c: random_ids(8, seed=5)})
    assert_holds(cache, a, [*prefix, 2])
    assert_holds(cache, b, [*prefix, 3])


@every_policy
def test_the_least_recently_used_prefix_goes_first(name):
    cache = cache_of(name, n_pages=6)
    x, y, z = ([*random_ids(8, seed=s), 0] for s in (1, 2, 3))
    run(cache, x), run(cache, y)
    assert run(cache, x) == 8  # now y is the older one
    run(cache, z)
    assert run(cache, x) == 8 and run(cache, y) < 8


@every_policy
def test_writing_over_a_remembered_page_forgets_it(name):
    """A sequence that is cut back and goes another way must not leave a page that claims its old tokens."""
    cache, tokens = cache_of(name), random_ids(8)
    seq, _ = cache.add_prefix(tokens)
    feed(cache, {seq: tokens})
    cache.remember(seq, tokens)
    cache.truncate(seq, 6)
    feed(cache, {seq: [90, 91]})
    assert_holds(cache, seq, [*tokens[:6], 90, 91])
    cache.free(seq)
    assert run(cache, [*tokens, 1]) == 4


@every_policy
def test_only_plain_prefixes_are_remembered(name):
    """C084 and its kind: tokens that are not all there, or whose positions have gaps, are refused."""
    cache = cache_of(name)
    seq = cache.add()
    feed(cache, {seq: random_ids(8)})
    with pytest.raises(CacheError, match="cannot remember"):
        cache.remember(seq, random_ids(9))
    cache.keep(seq, [0, 1, 2, 3, 5, 6, 7])
    with pytest.raises(CacheError, match="cannot remember"):
        cache.remember(seq, random_ids(7))


def check(cache, live):
    """Every block is in one state; tables name no free block; counts are the tables'; a remembered block is what it claims."""
    pool, counts = cache.tables.pool, Counter()
    for seq in live:
        counts.update(cache.tables.tables[seq])
    assert pool.references == [counts[b] for b in range(pool.n_blocks)]
    free = set(pool._free)
    assert len(free) == pool.free and not free & set(counts)
    evictable = {b for b in range(pool.n_blocks) if not counts[b] and pool.reuse.holds(b)}
    assert len(evictable) == pool.evictable and not evictable & free
    assert pool.free + pool.evictable + len(counts) == pool.n_blocks and pool.in_use == len(counts)
    assert not any(pool.reuse.holds(b) for b in free)


@every_policy
def test_a_long_random_life(name):
    """5,000 seeded operations a policy, 20,000 in all, over prompts with common beginnings in a pool that is always too small."""
    rng, cache, live = random.Random(7), cache_of(name, n_pages=14, size=2), {}
    stems = [[rng.randrange(3) for _ in range(8)] for _ in range(3)]
    hits = 0
    for turn in range(5000):
        action = rng.choice(["open", "open", "grow", "grow", "cut", "fork", "close", "remember"])
        if action == "open" and len(live) < 4:
            tokens = rng.choice(stems)[: rng.randint(1, 8)] + [rng.randrange(3) for _ in range(rng.randint(1, 3))]
            seq, reused = cache.add_prefix(tokens)
            assert reused % 2 == 0 and reused < len(tokens)
            hits += reused
            live[seq] = tokens[:reused]
            try:
                feed(cache, {seq: tokens[reused:]})
                live[seq] = tokens
            except CacheFull:
                cache.free(seq)
                del live[seq]
        elif live:
            seq = rng.choice(list(live))
            if action == "grow":
                new = [rng.randrange(3) for _ in range(rng.randint(1, 2))]
                try:
                    feed(cache, {seq: new})
                    live[seq] = live[seq] + new
                except CacheFull:
                    pass
            elif action == "cut":
                n = rng.randint(0, len(live[seq]))
                cache.truncate(seq, n)
                live[seq] = live[seq][:n]
            elif action == "fork" and len(live) < 5:
                live[cache.fork(seq)] = live[seq]
            elif action == "remember":
                cache.remember(seq, live[seq])
            elif action == "close":
                cache.remember(seq, live[seq])
                cache.free(seq)
                del live[seq]
        check(cache, live)
        if turn % 20 == 0 and cache.tables.pool.available:
            for seq, tokens in live.items():
                assert_holds(cache, seq, tokens)
    assert hits > 300, "the run must reuse a lot to prove anything"
    for seq in live:
        cache.free(seq)
    assert cache.tables.pool.available == 14
