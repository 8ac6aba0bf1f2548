"""The engine: every output is what the prompt gives alone, whatever else runs and whatever it went through."""

import math
from collections import deque

import pytest
import torch

from engines import REUSE, assert_all_came_back, engine_of, run_out, solo
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.engine import Engine
from kvedu.engine.metrics import timings
from kvedu.engine.order import by_priority
from kvedu.engine.preempt import Recompute, Swap
from kvedu.engine.trace import Admitted, Ended, Preempted, Stepped, Trace
from kvedu.errors import KveduError, RequestError
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampling
from kvedu.rope_config import RopeConfig
from scripted import Scripted, pieces_tokenizer
from tiny import random_ids, tiny_config, tiny_model


@pytest.mark.parametrize("reuse", REUSE)
@pytest.mark.parametrize("page_size", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_output_equals_solo(reuse, page_size, chunk):
    """C046, C051 and must hold 1: page size, chunk size, reuse and company change no token."""
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


@pytest.mark.parametrize("page_size", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("chunk", [1, 2, 5, 15, 16, 17, 32, 63, 64])
def test_a_long_prompt_in_chunks_of_any_size(page_size, chunk):
    """Must hold 1: 70 tokens in chunks of 1 to 64, around page edges, beside a decode and a prompt that shares 40 of them."""
    model = tiny_model()
    long, mate = random_ids(70), random_ids(3, seed=1)
    engine = engine_of(model, pages=512 // page_size, page_size=page_size, chunk=chunk, token_budget=66, reuse=HashReuse)
    numbers = [engine.add(mate, max_new_tokens=8), engine.add(long, max_new_tokens=3), engine.add(long[:40] + mate, max_new_tokens=3)]
    run_out(engine)
    wanted = [solo(model, mate, 8), solo(model, long, 3), solo(model, long[:40] + mate, 3)]
    assert [engine.results(n)[0].token_ids for n in numbers] == wanted
    prefills = [s.tokens for e in engine.trace.of(Stepped) for s in e.shares if s.request == numbers[1] and s.tokens > 1]
    assert not prefills or max(prefills) <= chunk
    assert_all_came_back(engine)


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


@pytest.mark.parametrize("chunk", [None, 1, 3, 4])
@pytest.mark.parametrize("reuse", ["none", "hash", "radix"])
def test_prompts_are_scored_whatever_the_chunks(chunk, reuse):
    """C014 and C023: 10 log-probabilities, the first empty, as generate gives them; with 0 new tokens nothing is sampled."""
    model = tiny_model()
    engine = engine_of(model, chunk=chunk, reuse=REUSE[reuse])
    prompt = random_ids(10)
    for n_new in (3, 0, 3):  # the second and third time with all of it remembered
        mate = engine.add(random_ids(7, seed=2), max_new_tokens=5)
        number = engine.add(prompt, max_new_tokens=n_new, prompt_logprobs=2)
        deltas = run_out(engine)
        wanted = generate(model, prompt, max_new_tokens=n_new, prompt_logprobs=2)
        got = engine.results(number)[0]
        assert (got.token_ids, got.finish_reason) == (wanted.token_ids, "length") and len(got.token_ids) == n_new
        assert len(got.prompt_logprobs) == 10 and got.prompt_logprobs[0] is None
        for mine, theirs in zip(got.prompt_logprobs[1:], wanted.prompt_logprobs[1:]):
            assert (mine.token_id, [i for i, _ in mine.top]) == (theirs.token_id, [i for i, _ in theirs.top])
            assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert sum(d.prompt == number for d in deltas) == max(n_new, 1)
        assert engine.results(mate)[0].token_ids == solo(model, random_ids(7, seed=2), 5)
    assert_all_came_back(engine)


@pytest.mark.parametrize("swap", [False, True])
def test_prompts_are_scored_through_preemption(swap):
    """Every token of the prompt is scored once, though it is sent back in the middle of its chunks and computed again."""
    model = tiny_model()
    preempt = Swap(10**6) if swap else Recompute()
    engine = engine_of(model, pages=8, page_size=2, chunk=3, token_budget=6, max_running=3, preempt=preempt, order=by_priority)
    scored = engine.add(random_ids(11), max_new_tokens=2, prompt_logprobs=0, priority=2)
    engine.step()
    mates = [engine.add(random_ids(3, seed=i), max_new_tokens=8, priority=1) for i in (1, 2)]
    run_out(engine)
    sent = [e for e in engine.trace.of(Preempted) if e.request == scored]
    assert any(0 < e.computed < 11 for e in sent), "it must be sent back in mid-prompt"
    wanted = generate(model, random_ids(11), max_new_tokens=2, prompt_logprobs=0)
    got = engine.results(scored)[0]
    assert got.token_ids == wanted.token_ids and len(got.prompt_logprobs) == 11
    for mine, theirs in zip(got.prompt_logprobs[1:], wanted.prompt_logprobs[1:]):
        assert mine.token_id == theirs.token_id and mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
    assert [engine.results(n)[0].token_ids for n in mates] == [solo(model, random_ids(3, seed=i), 8) for i in (1, 2)]


def test_an_end_in_the_first_step():
    """C024: prefill's own token is EOS, or 1 token was asked for: it ends in that step, blocks are free, no decode runs."""
    engine = engine_of(Scripted({2: 4, 5: 3}, eos_ids=(4,)))
    stopped, short = engine.add([9] * 3, max_new_tokens=9), engine.add([9] * 6, max_new_tokens=1)
    engine.step()
    assert engine.idle and engine.step() == [] and len(engine.trace.of(Stepped)) == 1
    assert [engine.results(n)[0].finish_reason for n in (stopped, short)] == ["stop", "length"]
    assert [engine.results(n)[0].token_ids for n in (stopped, short)] == [(4,), (3,)]
    assert_all_came_back(engine)


def test_sampling_is_each_requests_own():
    """C061, C062, C064, C066: temperatures 0, 0.8, tiny, filters and seeds side by side: each as alone, log-probabilities too."""
    model = tiny_model(scale=0.1)
    samplings = [
        Sampling(), Sampling(temperature=0.8, seed=1, logprobs=2), Sampling(temperature=1e-4, top_k=-1, logprobs=0),
        Sampling(temperature=1.0, top_p=0.5, seed=42, logprobs=4, tempered_logprobs=True), Sampling(temperature=1.0, seed=42),
        Sampling(temperature=1.0, seed=42), Sampling(repetition_penalty=1.4, logprobs=1),
        Sampling(temperature=1.0, top_p=0, top_k=500, seed=1),
    ]  # fmt: skip
    prompts = [random_ids(5, seed=0)] * 8
    got = engine_of(model).generate(prompts, sampling=samplings, max_new_tokens=8)
    for completion, sampling in zip(got, samplings):
        alone = generate(model, prompts[0], sampling=sampling, max_new_tokens=8)
        assert completion.token_ids == alone.token_ids
        for mine, theirs in zip(completion.logprobs or (), alone.logprobs or (), strict=True):
            assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4) and len(mine.top) == len(theirs.top)
    assert got[0].token_ids == got[2].token_ids == got[7].token_ids and got[4].token_ids == got[5].token_ids
    with pytest.raises(RequestError, match="2 sampling settings for 3"):
        engine_of(model).generate([[1]] * 3, sampling=samplings[:2])


def test_generate_gives_a_list_where_several_were_asked_for():
    model = tiny_model(scale=0.1)
    settings = dict(n=2, max_new_tokens=4, sampling=Sampling(temperature=1.0, seed=3))
    got = engine_of(model).generate([random_ids(3), random_ids(4)], **settings)
    wanted = generate(model, [random_ids(3), random_ids(4)], **settings)
    assert [[c.token_ids for c in copies] for copies in got] == [[c.token_ids for c in copies] for copies in wanted]


def test_an_interrupted_generate_leaves_nothing_behind():
    """Ctrl-C in the middle of a batch: its requests are aborted, the others go on."""
    model = tiny_model()
    engine = engine_of(model)
    other = engine.add(random_ids(4), max_new_tokens=12)
    steps, step = iter(range(4)), engine.step

    def interrupted():
        if next(steps) == 3:
            raise KeyboardInterrupt
        return step()

    engine.step = interrupted
    with pytest.raises(KeyboardInterrupt):
        engine.generate([random_ids(3), random_ids(5)], max_new_tokens=50)
    engine.step = step
    assert len(engine.scheduler.running) == 1
    assert [t for d in engine.stream(other) for t in d.token_ids] == list(solo(model, random_ids(4), 12))
    assert_all_came_back(engine)


def test_a_step_that_fails_can_be_run_again():
    """Out of memory in the middle of a step: nothing is committed, and the next step does it all."""
    model = tiny_model()
    engine = engine_of(model, reuse=HashReuse)
    numbers = [engine.add(random_ids(6, seed=i), max_new_tokens=5) for i in range(3)]
    hidden, calls = model.hidden, iter(range(100))

    def failing(ids_N, view):
        if next(calls) in (0, 3, 4):
            view.append(0, *(torch.zeros(len(ids_N), 2, 8) for _ in "kv"))
            raise MemoryError("no room")
        return hidden(ids_N, view)

    model.hidden = failing
    failed = 0
    for _ in range(40):
        try:
            engine.step()
        except MemoryError:
            failed += 1
    del model.hidden
    assert failed == 3
    assert [engine.results(n)[0].token_ids for n in numbers] == [solo(model, random_ids(6, seed=i), 5) for i in range(3)]
    assert_all_came_back(engine)


def test_a_request_that_would_cross_a_switch_of_rope_is_refused():
    """Keys rotated with other frequencies cannot be mixed; only that request hears of it."""
    rope = RopeConfig(dim=8, kind="dynamic", factor=2.0, max_positions=16)
    model = tiny_model(tiny_config(rope=rope))
    engine = engine_of(model)
    number = engine.add(random_ids(10), max_new_tokens=7)
    with pytest.raises(RequestError, match="past 16 the dynamic RoPE"):
        engine.add(random_ids(10), max_new_tokens=8)
    run_out(engine)
    assert engine.results(number)[0].token_ids == solo(model, random_ids(10), 7)


def test_a_record_can_be_dropped():
    """Those who serve without end forget: nothing of a request stays but its trace; a running one is aborted first."""
    engine = engine_of(tiny_model())
    done, running = engine.add(random_ids(3), max_new_tokens=1), engine.add(random_ids(3), max_new_tokens=99)
    engine.step()
    engine.forget(done)
    engine.forget(running)
    assert_all_came_back(engine)
    assert not engine._requests and not engine._unread
    with pytest.raises(RequestError, match="no request 0; add\\(\\) gave out 2"):
        engine.results(done)
    assert engine.add(random_ids(3)) == 2


def test_stop_strings_and_eos_end_early():
    model = Scripted({2: 1, 3: 2, 4: 3, 5: 4}, eos_ids=(4,))
    model.tokenizer = pieces_tokenizer(["<0>", "ab", "cd", "ef", "!"] + [f"<{i}>" for i in range(5, 97)])
    engine = engine_of(model)
    stopped, ended = engine.add([9, 9, 9], stop="bcd"), engine.add([9, 9, 9])
    for nothing in ("", []):  # C021, with a tokenizer that adds no token of its own
        with pytest.raises(RequestError, match="the prompt is empty"):
            engine.add(nothing)
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


def test_a_trace_that_forgets():
    """Who serves without end bounds the record; nothing of a request is left in the engine either."""
    engine = engine_of(tiny_model(), trace=Trace(deque(maxlen=5)))
    for i in range(20):
        number = engine.add(random_ids(3, seed=i), max_new_tokens=2)
        if i % 2:
            run_out(engine)
        engine.forget(number)
    assert len(engine.trace.events) == 5 and isinstance(engine.trace.events[-1], Ended)
    assert not engine._requests and not engine._unread


def test_waiting_outside_the_engine_counts():
    """A request that came before add() was called has waited since then, and ranks by it."""
    ticks = iter(range(100))
    engine = engine_of(tiny_model(), max_running=1, clock=lambda: float(next(ticks)))
    second = engine.add(random_ids(3), max_new_tokens=1)
    first = engine.add(random_ids(4), max_new_tokens=1, arrived=-7.5)
    run_out(engine)
    assert [e.request for e in engine.trace.of(Ended)] == [first, second]
    assert timings(engine.trace)[first].queue_seconds == 7.5 + engine.trace.of(Admitted)[0].time


@pytest.mark.parametrize("preempt", [Recompute(), Swap(10**6)])
def test_a_trace_survives_the_file(preempt):
    engine = engine_of(tiny_model(), pages=9, page_size=2, preempt=preempt)
    engine.generate([random_ids(6, seed=i) for i in range(4)], max_new_tokens=9)
    assert Trace.from_json(engine.trace.to_json()) == engine.trace
    assert {type(e).__name__ for e in engine.trace.events} == {"Arrived", "Admitted", "Stepped", "Preempted", "Ended"}
