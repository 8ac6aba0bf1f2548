"""Engines on tiny models, and what must hold when one has served everybody."""

from __future__ import annotations

from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.engine.engine import Engine
from kvedu.model.loops import greedy_uncached

REUSE = {"none": None, "hash": HashReuse, "radix": RadixReuse, "all collide": lambda size: HashReuse(size, lambda key: 0)}


def page_bytes(model, page_size):
    return page_size * kv_bytes_per_token(model.config, 4)


def engine_of(model, pages=64, page_size=4, **options):
    settings = {"max_running": 8, "token_budget": 32} | options
    return Engine(model, cache_bytes=pages * page_bytes(model, page_size), page_size=page_size, **settings)


def solo(model, prompt, n):
    """The judge: the prompt alone, a full forward pass for each token, no cache."""
    return tuple(greedy_uncached(model, prompt, n))


def run_out(engine, steps=1000):
    """Step until everybody has ended; the deltas."""
    deltas = []
    for _ in range(steps):
        if engine.idle:
            return deltas
        deltas += engine.step()
    raise AssertionError(f"not idle after {steps} steps")


def assert_accounts(engine):
    """After every step: each block in one state, shared ones counted once; host pages as many as the parked hold."""
    pool, scheduler = engine.cache.tables.pool, engine.scheduler
    held = [block for s in scheduler.running for block in engine.cache.tables.tables[s.run.seq]]
    assert pool.in_use == len(set(held)) and all(pool.references[b] == held.count(b) for b in set(held))
    assert pool.in_use + pool.evictable + pool.free == pool.n_blocks and min(pool.references) >= 0
    assert set(engine.cache.sequences) == {s.run.seq for s in scheduler.running}
    if scheduler.space is not None:
        parked = {page for s in scheduler.waiting if s.parked for page in s.parked.pages}
        assert scheduler.space.pages.free == scheduler.space.pages.n_pages - len(parked)
    assert scheduler.running == sorted(scheduler.running, key=lambda s: s.rank)


def assert_all_came_back(engine):
    pool = engine.cache.tables.pool
    assert engine.idle and engine.cache.sequences == () and pool.in_use == 0 and pool.available == pool.n_blocks
    if engine.scheduler.space is not None:
        assert engine.scheduler.space.pages.free == engine.scheduler.space.pages.n_pages
