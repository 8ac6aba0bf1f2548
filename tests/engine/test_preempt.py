"""Preemption by swapping: nothing is computed twice, bytes are counted, host memory runs full, aborts and forks."""

import pytest

from engines import REUSE, assert_accounts, assert_all_came_back, engine_of, page_bytes, run_out, solo
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.engine.metrics import preemptions, swapped_bytes
from kvedu.engine.planned_blocks import PlannedBlocks
from kvedu.engine.preempt import Recompute, Swap
from kvedu.engine.simulate import roofline_seconds, simulate
from kvedu.engine.trace import Admitted, Ended, Preempted, Stepped
from kvedu.engine.workload import Arrival, all_at_once, independent, uniform
from kvedu.errors import KveduError, RequestError
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampling
from tiny import random_ids, tiny_model


def swapping(model, pages, page_size, host_pages=1000, **options):
    return engine_of(model, pages=pages, page_size=page_size, preempt=Swap(host_pages * page_bytes(model, page_size)), **options)


def tokens_computed(engine):
    return sum(share.tokens for step in engine.trace.of(Stepped) for share in step.shares)


@pytest.mark.parametrize("reuse", REUSE)
@pytest.mark.parametrize("page_size", [1, 2, 4, 16])
@pytest.mark.parametrize("chunk", [None, 2])
def test_swapping_changes_nothing_and_computes_nothing_twice(reuse, page_size, chunk):
    """C069 and must hold 1, by swapping: same tokens, no gap in the stream; each token goes through the model once."""
    model = tiny_model(scale=0.15)
    prompts = [random_ids(6, seed=i) for i in range(4)]
    engine = swapping(model, max(1, 16 // page_size), page_size, reuse=REUSE[reuse], chunk=chunk)
    numbers = [engine.add(p, max_new_tokens=9, sampling=Sampling(temperature=1.0, seed=5)) for p in prompts]
    streamed = {number: [] for number in numbers}
    while not engine.idle:
        for delta in engine.step():
            streamed[delta.prompt] += delta.token_ids
        assert_accounts(engine)
    wanted = [generate(model, p, max_new_tokens=9, sampling=Sampling(temperature=1.0, seed=5)).token_ids for p in prompts]
    assert [tuple(streamed[n]) for n in numbers] == wanted
    assert tokens_computed(engine) == 4 * (6 + 8)
    if page_size < 16:  # where one page holds a whole sequence, nobody grows into the need for another
        sent = engine.trace.of(Preempted)
        assert sent and all(e.swapped_bytes is not None for e in sent)
    assert_all_came_back(engine)


def test_the_trace_counts_the_bytes():
    """What goes out comes back: pages of the sequence times their bytes, at the moment it left."""
    model = tiny_model()
    engine = swapping(model, 8, 2)
    for i in range(3):
        engine.add(random_ids(5, seed=i), max_new_tokens=6)
    run_out(engine)
    out = engine.trace.of(Preempted)
    back = [e for e in engine.trace.of(Admitted) if e.again]
    assert len(out) == len(back) > 0
    for e in out:
        assert e.swapped_bytes == -(-e.computed // 2) * page_bytes(model, 2)
        assert next(b for b in back if b.request == e.request and b.time > e.time).reused == e.computed
    assert swapped_bytes(engine.trace) == (sum(e.swapped_bytes for e in out), sum(e.swapped_bytes for e in back))
    assert swapped_bytes(engine.trace)[0] == swapped_bytes(engine.trace)[1]
    assert all(e.swapped_bytes is None for e in engine.trace.of(Admitted) if not e.again)


@pytest.mark.parametrize("host_pages", [0, 3])
def test_where_host_memory_is_full_it_is_computed_again(host_pages):
    model = tiny_model()
    engine = swapping(model, 9, 2, host_pages)
    prompts = [random_ids(6, seed=i) for i in range(4)]
    got = engine.generate(prompts, max_new_tokens=9)
    assert [c.token_ids for c in got] == [solo(model, p, 9) for p in prompts]
    again = [e for e in engine.trace.of(Preempted) if e.swapped_bytes is None]
    assert again and tokens_computed(engine) > 4 * (6 + 8)
    assert host_pages or len(again) == preemptions(engine.trace)
    assert_all_came_back(engine)


def test_abort_while_swapped():
    """C071: a request that lies in host memory is aborted: its pages there are free at once, the others are as alone."""
    model = tiny_model()
    engine = swapping(model, 9, 2)
    numbers = [engine.add(random_ids(6, seed=i), max_new_tokens=9) for i in range(3)]
    while not any(s.parked for s in engine.scheduler.waiting):
        engine.step()
    gone = next(s for s in engine.scheduler.waiting if s.parked).id
    engine.abort(gone)
    engine.abort(gone)
    assert_accounts(engine)
    assert engine.scheduler.space.pages.free == 1000
    run_out(engine)
    for number in numbers:
        wanted = solo(model, random_ids(6, seed=number), 9)
        got = engine.results(number)[0]
        assert got.token_ids == wanted or number == gone and got.token_ids == wanted[: len(got.token_ids)]
        assert got.finish_reason == ("abort" if number == gone else "length")
    assert sum(e.request == gone for e in engine.trace.of(Ended)) == 1
    assert_all_came_back(engine)


@pytest.mark.parametrize("host_pages", [11, 100])
def test_completions_of_one_prompt_are_swapped(host_pages):
    """Fork n = 4 over pages that all share, swapped and back one by one: a shared page is copied out once."""
    model = tiny_model(scale=0.1)
    sampling = Sampling(temperature=1.0, seed=42)
    engine = swapping(model, 13, 2, host_pages)
    number = engine.add(random_ids(8), n=4, max_new_tokens=9, sampling=sampling)
    other = engine.add(random_ids(3, seed=1), max_new_tokens=6)
    while not engine.idle:
        engine.step()
        assert_accounts(engine)
    wanted = generate(model, random_ids(8), n=4, max_new_tokens=9, sampling=sampling)
    assert [c.token_ids for c in engine.results(number)] == [c.token_ids for c in wanted]
    assert engine.results(other)[0].token_ids == solo(model, random_ids(3, seed=1), 6)
    parked = [e for e in engine.trace.of(Preempted) if e.swapped_bytes is not None and e.request == number]
    assert len(parked) > (host_pages == 100)
    if host_pages == 100:
        whole = sum(-(-e.computed // 2) for e in parked) * page_bytes(model, 2)
        assert sum(e.swapped_bytes for e in parked) < whole
    assert_all_came_back(engine)


def test_memory_one_page_short_still_ends_by_swapping():
    """Must hold 4, by swapping: each needs all pages but one, so they take turns."""
    model = tiny_model()
    engine = swapping(model, 5, 4)
    numbers = [engine.add(random_ids(9, seed=i), max_new_tokens=9) for i in range(3)]
    run_out(engine, 60)
    assert [engine.results(n)[0].token_ids for n in numbers] == [solo(model, random_ids(9, seed=i), 9) for i in range(3)]


def test_policies_are_checked():
    with pytest.raises(RequestError, match="0 bytes or more"):
        Swap(-1)
    with pytest.raises(KveduError, match="block_bytes"):
        PlannedBlocks(4, 2).swap_space(100)
    assert Recompute() == Recompute() and Recompute().space(PlannedBlocks(4, 2)) is None


def crowd():
    return independent(all_at_once(12), uniform(5, 30), uniform(10, 40), seed=3)


def test_the_simulator_swaps_as_the_engine_does():
    """Same plans, same bytes: the real engine and the simulator on one workload, step by step."""
    model = tiny_model()
    engine = swapping(model, 24, 4, host_pages=8)
    for a in crowd():
        engine.add([i % 97 for i in a.prompt_ids], max_new_tokens=a.max_new_tokens)
    run_out(engine)
    block_bytes = page_bytes(model, 4)
    arrivals = [Arrival(0.0, tuple(i % 97 for i in a.prompt_ids), a.max_new_tokens) for a in crowd()]
    trace = simulate(
        arrivals, lambda plan: 1.0, n_blocks=24, page_size=4, block_bytes=block_bytes, max_running=8, token_budget=32,
        preempt=Swap(8 * block_bytes),
    )
    assert [s.shares for s in trace.of(Stepped)] == [s.shares for s in engine.trace.of(Stepped)]
    moved = [(e.request, e.computed, e.swapped_bytes) for e in trace.of(Preempted)]
    assert moved == [(e.request, e.computed, e.swapped_bytes) for e in engine.trace.of(Preempted)]
    assert {m is None for _, _, m in moved} == {True, False} and swapped_bytes(trace) == swapped_bytes(engine.trace)


def test_copies_take_time_on_a_link():
    config, hw = known_model("SmolLM2-135M").config, hardware("T4")
    runs = {}
    for rate in (None, 1e6):
        seconds = roofline_seconds(config, hw, "fp16", host_bytes_per_second=rate)
        runs[rate] = simulate(
            crowd(), seconds, n_blocks=24, page_size=4, block_bytes=1000, max_running=8, token_budget=32, preempt=Swap(10**6)
        )
    free, slow = (trace.of(Stepped)[-1].time for trace in runs.values())
    assert slow - free == pytest.approx(sum(swapped_bytes(runs[None])) / 1e6)
