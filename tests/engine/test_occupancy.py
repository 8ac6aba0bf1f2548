"""Occupancy and waste: worked out by hand, and against the block tables of a run of the engine."""

from __future__ import annotations

import pytest

from kvedu.book.rows import load_row
from kvedu.engine.engine import Engine
from kvedu.engine.occupancy import Occupancy, occupancy, waste
from kvedu.engine.simulate import simulate
from kvedu.engine.trace import Arrived, Ended, Preempted, Share, Stepped, Trace
from kvedu.engine.workload import Arrival
from kvedu.errors import KveduError
from tiny import random_ids, tiny_model


def stepped(start, time, *shares, used=2, free=2):
    return Stepped(time, start, 0, tuple(Share(*share) for share in shares), 0, used, 0, free)


def test_by_hand():
    """Request 0 is sent back and comes again; request 1 has two copies, of which one ends before the other."""
    trace = Trace(
        [
            Arrived(0.0, 0, 5, 9),
            Arrived(0.0, 1, 3, 2, 2),
            stepped(0.0, 1.0, (0, 0, 5, 0, True), (1, 0, 2, 0, False), used=3, free=1),
            stepped(1.0, 3.0, (0, 0, 1, 5, True), (1, 0, 1, 2, True), used=3, free=1),
            Preempted(3.0, 0, 0, 6),
            stepped(3.0, 4.0, (1, 0, 1, 3, True), (1, 1, 1, 3, True), used=1, free=3),
            Ended(4.0, 1, 1, "length", 2),
            stepped(4.0, 5.0, (0, 0, 6, 0, True), (1, 0, 1, 4, True), used=4, free=0),
            Ended(5.0, 1, 0, "length", 3),
            Ended(6.0, 0, 0, "abort", 3),
        ]
    )
    rows = occupancy(trace, 4)
    assert [(r.sequences, r.tokens) for r in rows] == [(2, 7), (3, 12), (1, 4), (1, 6)]
    assert [(r.seconds, r.places_in_use, r.places) for r in rows] == [(1, 12, 16), (2, 12, 16), (1, 4, 16), (1, 16, 16)]
    assert waste(rows) == pytest.approx(1 - (7 + 2 * 12 + 4 + 6) / (12 + 24 + 4 + 16))


def test_nothing_in_use_is_no_waste():
    with pytest.raises(KveduError, match="no place in use"):
        waste([Occupancy(1.0, 0, 0, 0, 8, 3)])


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_engine_holds_what_occupancy_says(page_size):
    """After each step: sequences, tokens and places are those of the cache, also with preemption and with a long prompt."""
    model = tiny_model()
    engine = Engine(model, cache_bytes=48 * 2 * model.config.L * model.config.K * model.config.D * 4, page_size=page_size, chunk=5)
    for seed, (prompt, new) in enumerate(((12, 9), (3, 20), (20, 6), (7, 12))):
        engine.add(random_ids(prompt, seed=seed), max_new_tokens=new)
    seen = []
    while not engine.idle:
        engine.step()
        lengths = [engine.cache.length(seq) for seq in engine.cache.sequences]
        seen.append((sum(n > 0 for n in lengths), sum(lengths), engine.cache.tables.pool.in_use * page_size))
    rows = occupancy(engine.trace, page_size)
    assert [(r.sequences, r.tokens, r.places_in_use) for r in rows] == seen
    assert engine.trace.of(Preempted), "the cache was to be too small for all four"


def replies(limit: int) -> list[Arrival]:
    """The stored length mix: prompts and replies of the real model, as far as ``limit`` tokens hold them."""
    row = load_row("reply_lengths")
    pairs = zip(row["prompt_tokens"], row["reply_tokens"])
    return [Arrival(0.0, tuple(range(P)), N) for P, N in pairs if P + N - 1 <= limit]


def served(page_size: int, places: int = 32_768) -> list[Occupancy]:
    """The mix through the engine's scheduler, every step one second, with this much memory."""
    trace = simulate(
        replies(2048), lambda plan: 1.0, n_blocks=places // page_size, page_size=page_size, max_running=256, token_budget=2048
    )
    return occupancy(trace, page_size)


def test_pages_of_16_waste_under_4_percent_and_reservation_over_60():
    """A4.1: a page of the greatest length is a reservation of it; what is wasted follows from the mean length held."""
    paged, reserved = served(16), served(2048)
    assert waste(paged) < 0.04 and waste(reserved) > 0.60
    for rows, page_size in ((paged, 16), (served(64), 64)):
        mean = sum(r.tokens for r in rows) / sum(r.sequences for r in rows)
        unused = (page_size - 1) / 2
        assert waste(rows) == pytest.approx(unused / (mean + unused), rel=0.1)
    mean = sum(r.tokens for r in reserved) / sum(r.sequences for r in reserved)
    assert waste(reserved) == pytest.approx(1 - mean / 2048, rel=1e-9)
    assert waste(served(1)) == 0
