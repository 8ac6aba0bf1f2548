"""The promise of the engine, on lives drawn at random: every output is what the prompt gives alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import REUSE, assert_all_came_back, engine_of, page_bytes, run_out
from kvedu.engine.order import LongestPrefix, by_priority, first_come, static
from kvedu.engine.preempt import Recompute, Swap
from kvedu.engine.trace import Admitted, Preempted
from lives import judge, live
from tiny import tiny_config, tiny_model

ORDERS = {"first come": first_come, "priority": by_priority, "longest prefix": LongestPrefix(patience=2)}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    reuse=st.sampled_from(list(REUSE)),
    page_size=st.sampled_from([1, 2, 4]),
    order=st.sampled_from(list(ORDERS)),
    admit=st.sampled_from(["continuous", "static"]),
    host_pages=st.sampled_from([None, 0, 4, 100]),
    chunk=st.sampled_from([None, 1, 2, 5]),
)
def test_any_life_of_an_engine(seed, reuse, page_size, order, admit, host_pages, chunk):
    """Must hold 1: policies, page and chunk sizes, reuse, forks, aborts and both preemptions in a pool that is too small."""
    model = tiny_model(tiny_config(L=1, eos_ids=(3, 4)))
    preempt = Recompute() if host_pages is None else Swap(host_pages * page_bytes(model, page_size))
    policy = {"admit": static} if admit == "static" else {}
    engine = engine_of(
        model, pages=24 // page_size, page_size=page_size, reuse=REUSE[reuse], max_running=4, token_budget=6, chunk=chunk,
        order=ORDERS[order], preempt=preempt, **policy,
    )
    asked, aborted = live(seed, model, engine)
    run_out(engine)
    assert_all_came_back(engine)
    judge(model, engine, asked, aborted)


@pytest.mark.parametrize("reuse", REUSE)
@pytest.mark.parametrize("host_pages", [None, 6, 100])
def test_long_lives_that_do_everything(reuse, host_pages):
    """Three lives of 400 turns for each policy: they preempt, come back both ways, fork and abort, or they prove nothing."""
    model = tiny_model(tiny_config(L=1, eos_ids=(3,)), scale=0.15)
    preempt = Recompute() if host_pages is None else Swap(host_pages * page_bytes(model, 2))
    counts = {"computed again": 0, "swapped": 0, "came back": 0, "aborted": 0}
    for seed in range(3):
        engine = engine_of(model, pages=13, page_size=2, reuse=REUSE[reuse], max_running=5, token_budget=7, preempt=preempt)
        asked, aborted = live(seed, model, engine, max_requests=60, turns=400)
        run_out(engine)
        assert_all_came_back(engine)
        judge(model, engine, asked, aborted)
        counts["aborted"] += len(aborted)
        for event in engine.trace.of(Preempted):
            counts["computed again" if event.swapped_bytes is None else "swapped"] += 1
        counts["came back"] += sum(event.swapped_bytes is not None for event in engine.trace.of(Admitted))
    assert counts["aborted"] > 3
    assert (counts["computed again"] > 3) == (host_pages in (None, 6))
    assert (counts["swapped"] > 3) == (counts["came back"] > 3) == (host_pages is not None)
