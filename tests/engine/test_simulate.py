"""The simulator: the engine's own scheduler, so its promises hold; and times that can be worked out."""

import random
from dataclasses import replace

import pytest

from engines import engine_of, run_out
from kvedu.analysis.cost import step_time
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.engine.metrics import output_tokens_per_second, preemptions, prefix_hits, slot_utilization, timings
from kvedu.engine.order import LongestPrefix, by_priority, static
from kvedu.engine.scheduler import Plan, Scheduler, Work
from kvedu.engine.sequence import Sequence
from kvedu.engine.simulate import PlannedBlocks, blocks_beside_weights, roofline_seconds, simulate
from kvedu.engine.trace import Arrived, Ended, Stepped
from kvedu.engine.workload import Arrival, agents, closed, conversations, independent, lognormal, poisson, uniform
from kvedu.errors import CacheFull, KveduError, RequestError
from kvedu.model.completion import Run
from kvedu.model.request import Request
from kvedu.model.sampling import Sampling
from tiny import tiny_config, tiny_model


def by_tokens(plan):
    """1 second and 1/10 more for every token of the step."""
    return 1.0 + sum(work.tokens for work in plan.work) / 10


def mixed(n=60, seed=5, rate=0.3):
    return independent(poisson(n, rate, seed), lognormal(20, 1.0, 60), uniform(1, 20), shared_tokens=10, shared_every=2, seed=seed)


def assert_all_done(trace, arrivals):
    rows = timings(trace)
    assert [row.request for row in rows] == list(range(len(arrivals)))
    assert all(len(row.token_seconds) == a.max_new_tokens and row.reason == "length" for row, a in zip(rows, arrivals))
    assert trace.of(Stepped)[-1].blocks_in_use == 0 and trace.of(Stepped)[-1].waiting == 0


@pytest.mark.parametrize("reuse", [None, HashReuse, RadixReuse])
@pytest.mark.parametrize("n_blocks", [16, 200])
@pytest.mark.parametrize("policy", [{}, {"chunk": 5}, {"admit": static}, {"order": by_priority}, {"order": LongestPrefix(2)}])
def test_plans_are_those_of_the_real_engine(reuse, n_blocks, policy):
    """Where no time is involved, step for step: who runs, how many tokens, who was let in or sent back, what was reused."""
    model, rng = tiny_model(tiny_config(L=1)), random.Random(4)
    stems = [[rng.randrange(97) for _ in range(12)] for _ in range(2)]
    prompts = [rng.choice(stems) + [rng.randrange(97) for _ in range(rng.randint(1, 20))] for _ in range(14)]
    arrivals = [Arrival(0.0, tuple(p), rng.randint(1, 25), priority=rng.randint(0, 2)) for p in prompts]
    engine = engine_of(model, pages=n_blocks, page_size=4, reuse=reuse, max_running=5, token_budget=24, **policy)
    for a in arrivals:
        engine.add(a.prompt_ids, max_new_tokens=a.max_new_tokens, priority=a.priority, arrived=0.0)
    run_out(engine)
    trace = simulate(
        arrivals, by_tokens, n_blocks=n_blocks, page_size=4, reuse=reuse, max_running=5, token_budget=24, **policy
    )
    events = [[replace(e, time=0.0, **({"start": 0.0} if isinstance(e, Stepped) else {})) for e in t.events] for t in (engine.trace, trace)]
    assert [e for e in events[0] if not isinstance(e, Arrived)] == [e for e in events[1] if not isinstance(e, Arrived)]
    assert (preemptions(trace) > 0) == (n_blocks == 16)


@pytest.mark.parametrize("reuse", [None, HashReuse, RadixReuse])
@pytest.mark.parametrize("n_blocks", [21, 200])
@pytest.mark.parametrize("policy", [{}, {"chunk": 5}, {"admit": static}])
def test_every_request_ends_and_every_block_comes_back(reuse, n_blocks, policy):
    arrivals = mixed()
    trace = simulate(
        arrivals, by_tokens, n_blocks=n_blocks, page_size=4, reuse=reuse, max_running=8, token_budget=24, **policy
    )
    assert_all_done(trace, arrivals)
    assert (preemptions(trace) > 0) == (n_blocks == 21)
    for step in trace.of(Stepped):
        assert step.blocks_in_use + step.blocks_evictable + step.blocks_free == n_blocks
        assert sum(share.tokens for share in step.shares) <= 24 and len(step.shares) <= 8
    times = [event.time for event in trace.events]
    assert times == sorted(times)


def test_same_workload_same_trace():
    def run():
        return simulate(mixed(), by_tokens, n_blocks=24, page_size=4, reuse=HashReuse, max_running=8, token_budget=24)

    assert run() == run()
    assert run() != simulate(mixed(seed=6), by_tokens, n_blocks=24, page_size=4, reuse=HashReuse, max_running=8, token_budget=24)


def test_a_static_batch_wastes_what_the_longest_outlives():
    """A7.1: four sequences that need 4, 2, 10 and 3 tokens, one slot each: 6, 8, 0 and 7 slots stand empty."""
    arrivals = [Arrival(0.0, (1,), n) for n in (4, 2, 10, 3)]
    trace = simulate(arrivals, lambda plan: 1.0, n_blocks=8, max_running=4, admit=static)
    steps = trace.of(Stepped)
    used = [sum(share.request == r for step in steps for share in step.shares) for r in range(4)]
    assert [len(steps) - n for n in used] == [6, 8, 0, 7]
    assert slot_utilization(trace, 4) == 19 / 40


def test_a_free_slot_is_filled_at_once_or_with_the_next_batch():
    arrivals = [Arrival(0.0, (1,), n) for n in (4, 2, 10, 3) * 2]
    runs = {
        admit: simulate(arrivals, lambda plan: 1.0, n_blocks=8, max_running=4, **settings)
        for admit, settings in (("static", {"admit": static}), ("continuous", {}))
    }
    assert len(runs["static"].of(Stepped)) == 20
    # Slots are free after steps 2, 3 and 4 and take 4, 2, 10; the 3 comes after step 6 and the 10 ends with step 14.
    assert len(runs["continuous"].of(Stepped)) == 14
    assert slot_utilization(runs["continuous"], 4) == 38 / 56


def test_a_long_prompt_delays_a_decode_by_no_more_than_its_step():
    arrivals = [Arrival(0.0, (1,), 30), Arrival(5.0, tuple(range(200)), 4)]
    budgeted = simulate(arrivals, by_tokens, n_blocks=40, max_running=4, token_budget=20)
    assert max(timings(budgeted)[0].itl_seconds) == pytest.approx(1 + 20 / 10)
    whole = simulate(arrivals, by_tokens, n_blocks=40, max_running=4, token_budget=400)
    assert max(timings(whole)[0].itl_seconds) == pytest.approx(1 + 201 / 10)
    for trace in (budgeted, whole):  # and it is in every step until it ends
        assert all(step.shares[0].request == 0 for step in trace.of(Stepped)[:30])


def test_history_is_found_again():
    """A second turn reuses its first turn's prompt and reply, whole pages of what was computed."""
    chats = conversations([0.0], uniform(2, 2), uniform(20, 20), uniform(13, 13), pause_seconds=3.0)
    trace = simulate(chats, by_tokens, n_blocks=40, page_size=4, reuse=HashReuse)
    hits = prefix_hits(trace, 4)
    assert (hits.prompt_tokens, hits.reused_tokens) == (20 + 53, 32)  # the reply's 13th token was never computed
    first, second = timings(trace)
    assert second.arrived_seconds == first.ended_seconds + chats[1].time
    assert prefix_hits(simulate(chats, by_tokens, n_blocks=40, page_size=4), 4).rate == 0
    tools = agents(poisson(5, 1.0), tool_tokens=(80,))
    assert prefix_hits(simulate(tools, by_tokens, n_blocks=4000, reuse=RadixReuse), 16).rate > 0.5


def test_closed_load_never_has_more_than_its_clients():
    arrivals = closed(mixed(), clients=3)
    trace = simulate(arrivals, by_tokens, n_blocks=200, page_size=4)
    assert_all_done(trace, arrivals)
    assert max(len(step.shares) + step.waiting for step in trace.of(Stepped)) == 3


def test_planned_blocks_count_as_the_tables_do():
    rng = random.Random(2)
    blocks = PlannedBlocks(60, page_size=4, reuse=HashReuse(4))
    texts = {}
    for _ in range(3000):
        if rng.random() < 0.1 and len(texts) < 6:
            text = [7] * rng.randint(1, 30)
            seq, reused = blocks.add_prefix(text)
            texts[seq] = text[:reused]
        if texts and rng.random() < 0.1:
            seq = rng.choice(list(texts))
            blocks.remember(seq, texts[seq])
            blocks.free(seq)
            del texts[seq]
        growth = {seq: rng.randint(1, 6) for seq in texts if rng.random() < 0.5}
        expected = blocks.tables.needed({seq: (len(texts[seq]), n) for seq, n in growth.items()})
        assert blocks.blocks_needed(growth) == expected
        if expected > blocks.available:
            with pytest.raises(CacheFull):
                blocks.grow(growth)
            continue
        blocks.grow(growth)
        for seq, n in growth.items():
            texts[seq] = texts[seq] + [7] * n
            blocks.remember(seq, texts[seq])
        assert blocks.lengths == {seq: len(text) for seq, text in texts.items()}
        assert all(len(blocks.tables.tables[seq]) == -(-len(text) // 4) for seq, text in texts.items())


def share(tokens, context, pending=None):
    request = Request((1,) * (context + (pending or tokens)), 1, Sampling())
    return Work(Sequence(Run.start(request, 0, 0, 0, None), 0.0, computed=context), tokens)


def test_a_rectangular_step_takes_what_analysis_says():
    config, hw = known_model("Llama-3-8B").config, hardware("H100-SXM")
    seconds = roofline_seconds(config, hw, overhead_seconds=1e-3)
    for batch, tokens, context in ((1, 1, 500), (16, 1, 2000), (4, 128, 64)):
        plan = Plan(tuple(share(tokens, context) for _ in range(batch)))
        assert seconds(plan) == pytest.approx(step_time(config, hw, batch, tokens, context, overhead=1e-3))


def test_a_mixed_step_reads_its_weights_once():
    config, hw = known_model("Llama-3-8B").config, hardware("H100-SXM")
    seconds = roofline_seconds(config, hw)
    decode, chunk = share(1, 1000), share(100, 0, pending=300)
    apart = seconds(Plan((decode,))) + seconds(Plan((chunk,)))
    assert max(seconds(Plan((decode,))), seconds(Plan((chunk,)))) < seconds(Plan((decode, chunk))) < 0.6 * apart
    # A chunk that yields nothing reads no head.
    assert seconds(Plan((chunk,))) < seconds(Plan((share(100, 0),)))


def test_a_named_gpu_is_faster_than_a_slower_one():
    config = known_model("SmolLM2-135M").config
    speeds = []
    for name in ("T4", "H200-SXM"):
        hw = hardware(name)
        trace = simulate(mixed(rate=1e9), roofline_seconds(config, hw, "fp16"), n_blocks=blocks_beside_weights(config, hw) // 100)
        speeds.append(output_tokens_per_second(trace))
    assert 4.8e12 / 320e9 * 0.5 < speeds[1] / speeds[0] < 4.8e12 / 320e9 * 2
    with pytest.raises(CacheFull, match="no room"):
        blocks_beside_weights(known_model("Llama-3-8B").config, hardware("T4"))


def test_what_cannot_be_simulated_is_refused():
    long = [Arrival(0.0, (1,) * 20, 20)]
    with pytest.raises(RequestError, match="larger"):
        simulate(long, by_tokens, n_blocks=9, page_size=4)
    assert len(simulate(long, by_tokens, n_blocks=10, page_size=4).of(Ended)) == 1
    with pytest.raises(KveduError, match="clock"):
        simulate(long, lambda plan: 0.0, n_blocks=10, page_size=4)
    with pytest.raises(KveduError, match="nobody"):
        simulate(long, by_tokens, n_blocks=10, page_size=4, admit=lambda running: False)
    with pytest.raises(KveduError, match="earlier"):
        simulate([Arrival(0.0, (1,), 1, after=0)], by_tokens, n_blocks=10)


def test_the_scheduler_is_the_engines():
    """The simulation has no policy of its own: a request's steps are those of a Scheduler driven by hand."""
    arrivals = [Arrival(0.0, tuple(range(n)), 3) for n in (9, 5, 2)]
    trace = simulate(arrivals, by_tokens, n_blocks=10, page_size=4, max_running=2, token_budget=8)
    blocks = PlannedBlocks(10, 4)
    scheduler, seen = Scheduler(blocks, max_running=2, token_budget=8), []
    for number, a in enumerate(arrivals):
        request = Request(a.prompt_ids, 3, Sampling())
        scheduler.add(Sequence(Run.start(request, number, 0, None, None), 0.0))
    while not scheduler.idle:
        plan = scheduler.plan()
        seen.append([(w.sequence.id, w.tokens, w.yields) for w in plan.work])
        due = [w.sequence for w in plan.work if w.yields]
        blocks.grow({w.sequence.run.seq: w.tokens for w in plan.work})
        scheduler.computed(plan)
        for sequence in due:
            sequence.run.take(0, None)
            if sequence.run.finished:
                scheduler.finish(sequence)
    assert seen == [[(s.request, s.tokens, s.sampled) for s in step.shares] for step in trace.of(Stepped)]


def test_a_thousand_requests_on_an_h200():
    """What bench_simulate times ten thousand of: the cost of a step does not depend on how many have ended, or wait."""
    arrivals = independent(poisson(1000, 30.0), lognormal(200, 0.8), lognormal(200, 0.8))
    hw, config = hardware("H200-SXM"), known_model("Llama-3-8B").config
    trace = simulate(arrivals, roofline_seconds(config, hw), n_blocks=blocks_beside_weights(config, hw))
    assert_all_done(trace, arrivals)
