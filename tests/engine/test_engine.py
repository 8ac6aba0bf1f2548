"""The engine: every output is what the prompt gives alone, whatever else runs and whatever it went through."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.engine.engine import Engine
from kvedu.engine.scheduler import by_priority, static
from kvedu.engine.trace import Admitted, Ended, Preempted, Stepped, Trace
from kvedu.errors import KveduError, RequestError
from kvedu.model.generate import generate
from kvedu.model.loops import greedy_uncached
from kvedu.model.sampling import Sampling
from scripted import Scripted, pieces_tokenizer
from tiny import random_ids, tiny_config, tiny_model

REUSE = {"none": None, "hash": HashReuse, "radix": RadixReuse, "all collide": lambda size: HashReuse(size, lambda key: 0)}


def engine_of(model, pages=64, page_size=4, **options):
    page_bytes = page_size * kv_bytes_per_token(model.config, 4)
    return Engine(model, cache_bytes=pages * page_bytes, page_size=page_size, **{"max_running": 8, "token_budget": 32} | options)


def solo(model, prompt, n):
    return tuple(greedy_uncached(model, prompt, n))


def assert_all_came_back(engine):
    pool = engine.cache.tables.pool
    assert engine.idle and engine.cache.sequences == () and pool.in_use == 0 and pool.available == pool.n_blocks


@pytest.mark.parametrize("reuse", REUSE)
@pytest.mark.parametrize("page_size", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_output_equals_solo(reuse, page_size, chunk):
    """C046 and must hold 1: page size, chunk size, reuse and company change no token."""
    model = tiny_model()
    stem = random_ids(9, seed=3)
    prompts = [stem + random_ids(n, seed=n) for n in (1, 4, 7)] + [random_ids(2), stem, random_ids(11, seed=8)]
    engine = engine_of(model, pages=512 // page_size, page_size=page_size, chunk=chunk, reuse=REUSE[reuse], token_budget=70)
    for _ in range(2):  # the second time with whatever is remembered
        got = engine.generate(prompts, max_new_tokens=7)
        assert [c.token_ids for c in got] == [solo(model, p, 7) for p in prompts]
    assert_all_came_back(engine)
    again = [e for e in engine.trace.of(Admitted) if e.request >= 6]
    assert (sum(e.reused for e in again) > 0) == (reuse != "none" and page_size < 16)


@pytest.mark.parametrize("reuse", ["none", "hash", "radix"])
@pytest.mark.parametrize("warm", [False, True])
def test_preemption_changes_nothing(reuse, warm):
    """C069: a pool that forces preemption after some tokens; greedy and seeded; the stream has no gap and no repeat."""
    model = tiny_model(scale=0.15)
    prompts = [random_ids(6, seed=i) for i in range(4)]
    engine = engine_of(model, pages=9, page_size=2, reuse=REUSE[reuse])
    sampling = Sampling(temperature=1.0, seed=5) if warm else Sampling()
    numbers = [engine.add(p, max_new_tokens=9, sampling=sampling) for p in prompts]
    streamed = {number: [] for number in numbers}
    for _ in range(200):
        for delta in engine.step():
            streamed[delta.prompt] += delta.token_ids
    wanted = [generate(model, p, max_new_tokens=9, sampling=sampling).token_ids for p in prompts]
    assert [tuple(streamed[n]) for n in numbers] == wanted
    assert [engine.results(n)[0].token_ids for n in numbers] == wanted
    assert len(engine.trace.of(Preempted)) > 0, "the pool must be too small for all"
    if reuse == "none":
        back = next(e for e in engine.trace.of(Admitted) if e.again)
        step = next(e for e in engine.trace.of(Stepped) if e.start >= back.time and any(s.request == back.request for s in e.shares))
        share = next(s for s in step.shares if s.request == back.request)
        assert share.tokens > 6 and share.context == 0 and share.sampled, "the return computes prompt and output at once"
    assert_all_came_back(engine)


def test_a_chunked_prompt_yields_nothing_until_it_is_whole():
    """C014: prompt 10, chunk 4, 3 tokens wanted: the first comes with the third chunk, 3 in all."""
    model = tiny_model()
    engine = engine_of(model, chunk=4)
    engine.add(random_ids(10), max_new_tokens=3)
    per_step = [len(engine.step()) for _ in range(6)]
    assert per_step == [0, 0, 1, 1, 1, 0]
    assert [s.tokens for e in engine.trace.of(Stepped) for s in e.shares] == [4, 4, 2, 1, 1]
    assert engine.results(0)[0].token_ids == solo(model, random_ids(10), 3)


def test_a_long_prompt_does_not_starve_a_decode():
    """Decodes are in every step, however long the prompts that come in are, one after the other."""
    model = tiny_model()
    engine = engine_of(model, pages=400, token_budget=8, max_running=4)
    first = engine.add(random_ids(2), max_new_tokens=30)
    engine.step()
    for i in range(4):
        engine.add(random_ids(60, seed=i), max_new_tokens=2)
    while not engine.done(first):
        assert any(delta.prompt == first for delta in engine.step()), "every step yields a token of the running decode"


def test_what_can_never_fit_is_refused_at_once():
    """C067: 4 blocks of 4: a prompt of 20 is refused, 8 + 20 new too; a prompt of 4 runs as it does alone."""
    model = tiny_model()
    engine = engine_of(model, pages=4)
    for prompt, n in ((20, 1), (8, 20)):
        with pytest.raises(RequestError, match="the whole cache has 4"):
            engine.add(random_ids(prompt), max_new_tokens=n)
    assert engine.generate([random_ids(4)], max_new_tokens=4)[0].token_ids == solo(model, random_ids(4), 4)


def test_memory_one_page_short_still_ends():
    """Must hold 4: two that each need all but one page run one after the other; never 'nothing runs, something waits'."""
    model = tiny_model()
    engine = engine_of(model, pages=5, page_size=4)
    numbers = [engine.add(random_ids(9, seed=i), max_new_tokens=9) for i in range(3)]
    for _ in range(100):
        engine.step()
    idle_steps = [e for e in engine.trace.of(Stepped) if not e.shares]
    assert [engine.results(n)[0].token_ids for n in numbers] == [solo(model, random_ids(9, seed=i), 9) for i in range(3)]
    assert len(idle_steps) == 0 and len(engine.trace.of(Stepped)) < 60


@pytest.mark.parametrize("when", ["waiting", "prefill", "decode", "preempted", "finished"])
def test_abort(when):
    """C071: whenever it comes, what was held is given back at once, the others are as alone, a second abort is nothing."""
    model = tiny_model()
    engine = engine_of(model, pages=10, page_size=4, chunk=4)
    mate = engine.add(random_ids(5), max_new_tokens=12)
    third = engine.add(random_ids(5, seed=2), max_new_tokens=12)
    gone = engine.add(random_ids(12, seed=1), max_new_tokens=6)
    reached = {
        "waiting": lambda: True,
        "prefill": lambda: any(s.id == gone and 0 < s.computed < 12 for s in engine.scheduler.running),
        "decode": lambda: any(s.id == gone and s.run.sampled for s in engine.scheduler.running),
        "preempted": lambda: any(e.request == gone for e in engine.trace.of(Preempted)),
        "finished": lambda: engine.done(gone),
    }[when]
    for _ in range(80):
        if reached():
            break
        engine.step()
    assert reached(), "the test never got there"
    engine.abort(gone)
    engine.abort(gone)
    assert engine.done(gone)
    assert engine.results(gone)[0].finish_reason == ("length" if when == "finished" else "abort")
    for _ in range(60):
        engine.step()
    assert engine.results(mate)[0].token_ids == solo(model, random_ids(5), 12)
    assert engine.results(third)[0].token_ids == solo(model, random_ids(5, seed=2), 12)
    assert sum(e.request == gone for e in engine.trace.of(Ended)) == 1
    assert_all_came_back(engine)


def test_a_client_that_hangs_up():
    """C071: closing a stream after 2 pieces aborts its request, and only that."""
    model = tiny_model()
    engine = engine_of(model, pages=200)
    long, other = engine.add(random_ids(3), max_new_tokens=200), engine.add(random_ids(4), max_new_tokens=10)
    pieces = engine.stream(long)
    next(pieces), next(pieces)
    pieces.close()
    assert engine.done(long) and len(engine.results(long)[0].token_ids) < 5
    assert [t for d in engine.stream(other) for t in d.token_ids] == list(solo(model, random_ids(4), 10))
    assert_all_came_back(engine)


def test_bad_requests_disturb_nobody():
    """C021, C023: empty, over-long and out-of-range requests are refused while another is in mid-decode."""
    model = tiny_model()
    engine = engine_of(model)
    running = engine.add(random_ids(5), max_new_tokens=10)
    engine.step()
    for prompt, options in (([], {}), ([97], {}), (random_ids(300), {}), ([1], dict(max_new_tokens=-1)), ("text", {}), ([1], dict(n=9))):
        with pytest.raises(KveduError):
            engine.add(prompt, **options)
        engine.step()
    with pytest.raises(KveduError):
        engine.generate([random_ids(3), []])
    assert [t for d in engine.stream(running) for t in d.token_ids] == list(solo(model, random_ids(5), 10))
    assert_all_came_back(engine)
    for call in (engine.abort, engine.done, engine.results):
        with pytest.raises(RequestError, match="no request 99"):
            call(99)


def test_broken_logits_end_their_own_request_only():
    class Breaks(Scripted):
        def logits(self, hidden_RM):
            out = super().logits(hidden_RM)
            out[hidden_RM[:, 0] == 7] = math.nan
            return out

    engine = engine_of(Breaks({i: i + 1 for i in range(40)}))
    bad, good = engine.add(random_ids(6), max_new_tokens=9), engine.add(random_ids(30), max_new_tokens=4)
    while not engine.idle:
        engine.step()
    assert engine.results(bad)[0].finish_reason == "error" and engine.results(bad)[0].token_ids == (6, 7)
    assert engine.results(good)[0].token_ids == (30, 31, 32, 33)
    assert_all_came_back(engine)


def test_several_completions_share_their_prompt():
    """C064 and fork: n = 3 equals generate's three, and the prompt is computed once."""
    model = tiny_model(scale=0.1)
    engine = engine_of(model, page_size=4)
    sampling = Sampling(temperature=1.0, seed=42)
    number = engine.add(random_ids(10), n=3, max_new_tokens=6, sampling=sampling)
    while not engine.idle:
        engine.step()
    wanted = generate(model, random_ids(10), n=3, max_new_tokens=6, sampling=sampling)
    assert [c.token_ids for c in engine.results(number)] == [c.token_ids for c in wanted]
    assert sum(s.tokens for e in engine.trace.of(Stepped) for s in e.shares) == 10 + 3 * 5
    assert_all_came_back(engine)


def test_orders_and_static_batching():
    """Priority goes first; a static batch lets nobody in before its last has ended."""
    model = tiny_model()
    engine = engine_of(model, max_running=1, order=by_priority)
    late, early = engine.add([1], max_new_tokens=2, priority=5), engine.add([2], max_new_tokens=2, priority=1)
    while not engine.idle:
        engine.step()
    assert [e.request for e in engine.trace.of(Ended)] == [early, late]
    engine = engine_of(model, max_running=2, admit=static)
    for n in (4, 2, 3):
        engine.add(random_ids(3), max_new_tokens=n)
    while not engine.idle:
        engine.step()
    running = [len(e.shares) for e in engine.trace.of(Stepped)]
    assert running == [2, 2, 1, 1, 1, 1, 1]


def test_stop_strings_and_eos_end_early():
    model = Scripted({2: 1, 3: 2, 4: 3, 5: 4}, eos_ids=(4,))
    model.tokenizer = pieces_tokenizer(["<0>", "ab", "cd", "ef", "!"] + [f"<{i}>" for i in range(5, 97)])
    engine = engine_of(model)
    stopped, ended = engine.add([9, 9, 9], stop="bcd"), engine.add([9, 9, 9])
    texts = {n: "".join(d.text for d in engine.stream(n)) for n in (stopped, ended)}
    assert texts == {stopped: "a", ended: "abcdef"}
    assert [engine.results(n)[0].finish_reason for n in (stopped, ended)] == ["stop", "stop"]


def test_settings_that_cannot_work_are_refused():
    model = tiny_model()
    with pytest.raises(RequestError, match="token_budget is 4"):
        engine_of(model, max_running=8, token_budget=4)
    with pytest.raises(RequestError, match="chunk"):
        engine_of(model, chunk=0)
    with pytest.raises(KveduError, match="do not pay for one page"):
        Engine(model, cache_bytes=10)


def test_a_trace_survives_the_file():
    engine = engine_of(tiny_model(), pages=9, page_size=2)
    engine.generate([random_ids(6, seed=i) for i in range(4)], max_new_tokens=9)
    assert Trace.from_json(engine.trace.to_json()) == engine.trace
    assert {type(e).__name__ for e in engine.trace.events} == {"Arrived", "Admitted", "Stepped", "Preempted", "Ended"}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), reuse=st.sampled_from(list(REUSE)), page_size=st.sampled_from([1, 2, 4]))
def test_any_life_of_an_engine(seed, reuse, page_size):
    """Random requests, aborts and steps in a pool that is too small: outputs as alone, blocks accounted for after every step."""
    rng, model = random.Random(seed), tiny_model(tiny_config(L=1, eos_ids=(3, 4)))
    engine = engine_of(model, pages=24 // page_size, page_size=page_size, reuse=REUSE[reuse], max_running=4, token_budget=6,
                       chunk=rng.choice([None, 2]))
    stems, asked, aborted = [random_ids(5, seed=i) for i in range(2)], {}, set()
    for _ in range(60):
        action = rng.random()
        if action < 0.25 and len(asked) < 10:
            prompt = rng.choice(stems)[: rng.randint(1, 5)] + random_ids(rng.randint(1, 4), seed=rng.randint(0, 3))
            asked[engine.add(prompt, max_new_tokens=rng.randint(1, 8))] = prompt
        elif action < 0.3 and asked:
            number = rng.choice(list(asked))
            if not engine.done(number):
                aborted.add(number)
            engine.abort(number)
        else:
            engine.step()
        pool = engine.cache.tables.pool
        assert pool.in_use + pool.evictable + pool.free == pool.n_blocks
        assert all(s.run.seq in engine.cache.sequences for s in engine.scheduler.running)
    for _ in range(400):
        if engine.idle:
            break
        engine.step()
    assert_all_came_back(engine)
    for number, prompt in asked.items():
        completion = engine.results(number)[0]
        wanted = solo(model, prompt, engine._requests[number][0].run.request.max_new_tokens)
        end = next((i + 1 for i, token in enumerate(wanted) if token in (3, 4)), len(wanted))
        assert completion.token_ids == wanted[:end] or (number in aborted and wanted[:end][: len(completion.token_ids)] == completion.token_ids)
