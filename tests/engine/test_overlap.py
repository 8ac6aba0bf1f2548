"""One step ahead: the next step is asked for before the tokens of the last are known; the outputs are those of the engine that waits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvedu.engine.choose as choose
import kvedu.model.draw_rows as draw_rows
from engines import REUSE, assert_accounts, assert_all_came_back, engine_of, page_bytes, run_out, solo
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.executor import Executor
from kvedu.engine.metrics import timings
from kvedu.engine.preempt import Recompute, Swap
from kvedu.engine.trace import Ended, Preempted, Stepped
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampling
from kvedu.speculative.ngram import NGram
from scripted import Scripted, pieces_tokenizer
from lives import judge, live, settings as settings_of, tied
from test_any_life import ORDERS
from tiny import random_ids, tiny_config, tiny_model


@pytest.fixture
def order(monkeypatch):
    """What the engine did, in order: "ask" for a step, "read" its tokens."""
    said, coming, run = [], choose.Coming, Executor.run

    class Told(coming):
        def read(self):
            said.append("read")
            return super().read()

    def told(*args):
        said.append("ask")
        return run(*args)

    monkeypatch.setattr(choose, "Coming", Told)
    monkeypatch.setattr(Executor, "run", told)
    return said


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    reuse=st.sampled_from(list(REUSE)),
    page_size=st.sampled_from([1, 2, 4]),
    order=st.sampled_from(list(ORDERS)),
    host_pages=st.sampled_from([None, 0, 4, 100]),
    chunk=st.sampled_from([None, 1, 2, 5]),
)
def test_any_life(seed, reuse, page_size, order, host_pages, chunk):
    """The promise of the engine, a step ahead (C069, C071): forks, draws, aborts, both preemptions and reuse in a pool that is too small."""
    model = tiny_model(tiny_config(L=1, eos_ids=(3, 4)))
    preempt = Recompute() if host_pages is None else Swap(host_pages * page_bytes(model, page_size))
    engine = engine_of(
        model, pages=24 // page_size, page_size=page_size, reuse=REUSE[reuse], max_running=4, token_budget=6, chunk=chunk,
        order=ORDERS[order], preempt=preempt, overlap=True,
    )  # fmt: skip
    asked, aborted = live(seed, model, engine)
    run_out(engine)
    assert_all_came_back(engine)
    judge(model, engine, asked, aborted)


def mixed(model, overlap, eos=()):
    """All kinds of requests at once, the engine and its deltas."""
    engine = engine_of(model, pages=40, reuse=HashReuse, speculate=None, overlap=overlap, max_running=6, token_budget=16)
    wants = [
        {},
        {"sampling": Sampling(temperature=0.8, seed=1)},
        {"sampling": Sampling(temperature=0.8, top_k=5, seed=2)},
        {"sampling": Sampling(repetition_penalty=1.3)},
        {"sampling": Sampling(logprobs=2)},
        {"prompt_logprobs": 1},
        {"speculate": NGram()},
        {"n": 3, "sampling": Sampling(temperature=1.0, seed=3)},
        {"max_new_tokens": 1},
        {"max_new_tokens": 0},
    ]
    for i, want in enumerate(wants * 2):
        engine.add([5, 6, 7, 8, *random_ids(1 + i % 7, seed=i)], **{"max_new_tokens": 4 + i} | want)
    return engine, run_out(engine)


def test_mixed_requests_get_the_same():
    """Greedy, drawn, filtered, penalized, with reports, scores and guesses, forked, of one token and of none."""
    model = tiny_model(tiny_config(L=1, eos_ids=(3, 4)), scale=0.15)
    waits, ahead = (mixed(model, overlap) for overlap in (False, True))
    for number in range(20):
        for a, b in zip(waits[0].results(number), ahead[0].results(number)):
            assert (a.token_ids, a.finish_reason) == (b.token_ids, b.finish_reason)
            assert [x and x.token_id for x in a.logprobs or ()] == [x and x.token_id for x in b.logprobs or ()]
            assert (a.prompt_logprobs is None) == (b.prompt_logprobs is None)
    sent = [sorted((d.prompt, d.copy, d.token_ids) for d in deltas if d.token_ids) for _, deltas in (waits, ahead)]
    assert sent[0] == sent[1]


def test_a_step_is_asked_for_before_the_last_one_is_read(order):
    """And never two: the host is one step ahead of what it knows."""
    model = tiny_model(tiny_config(L=1))
    engine = engine_of(model, overlap=True)
    for i in range(3):
        engine.add(random_ids(4, seed=i), max_new_tokens=5, sampling=Sampling(temperature=i / 2, seed=i))
    assert engine.step() == [] and not engine.idle
    run_out(engine)
    assert "".join(what[0] for what in order) == "a" + "ar" * 4 + "r"


def test_guesses_are_waited_for(order):
    """The host verifies them before it plans on."""
    model = tiny_model(tiny_config(L=1))
    engine = engine_of(model, overlap=True)
    engine.add([5, 6, 5, 6], max_new_tokens=4, speculate=NGram())
    engine.add([7, 8], max_new_tokens=4)
    run_out(engine)
    assert "".join(what[0] for what in order[:-1]).startswith("arar")


@pytest.mark.parametrize("there", [False, True])
def test_filters_penalties_and_reports_do_not_wait(order, monkeypatch, there):
    """Their tokens are drawn where the logits are: a penalty counts the token in flight too, and the outputs are those of ``generate``."""
    if there:  # as a GPU draws them
        monkeypatch.setattr(draw_rows, "_is_host", lambda device: False)
    model = tiny_model(tiny_config(L=1), scale=0.15)
    engine = engine_of(model, overlap=True, max_running=30, token_budget=200)
    wants = [{"sampling": one, "n": n} for seed in range(4) for one in settings_of(seed) for n in (1, 1 + seed % 2)]
    prompts = [random_ids(4, seed=i) for i in range(len(wants))]
    numbers = [engine.add(prompt, max_new_tokens=9, **want) for prompt, want in zip(prompts, wants)]
    run_out(engine)
    said = [what[0] for what in order]
    assert "".join(said).startswith("aar") and all(said[i - 1 : i + 1] != ["r", "r"] for i, what in enumerate(said[:-40]) if what == "a")
    judge(model, engine, {number: (prompt, {"max_new_tokens": 9} | want) for number, prompt, want in zip(numbers, prompts, wants)}, set())


def test_the_surplus_token_is_nobodys():
    """A text that ends while its next step runs: nothing more is sent, counted, recorded or remembered."""
    model = tiny_model(tiny_config(L=1))
    prompt = random_ids(4, seed=1)
    tokens = solo(model, prompt, 30)
    end = next(i for i, token in enumerate(tokens) if i >= 8 and token not in tokens[:i])  # its first time, past a page
    model = tiny_model(tiny_config(L=1, eos_ids=(tokens[end],)))
    engines = []
    for overlap in (False, True):
        engine = engine_of(model, reuse=HashReuse, overlap=overlap, page_size=4)
        number, other = engine.add(prompt, max_new_tokens=30), engine.add(random_ids(5, seed=2), max_new_tokens=30, ignore_eos=True)
        deltas = run_out(engine)
        assert tuple(t for d in deltas if d.prompt == number for t in d.token_ids) == tokens[: end + 1]
        assert engine.results(number)[0].finish_reason == "stop" and engine.done(other)
        shares = [share for step in engine.trace.of(Stepped) for share in step.shares if share.request == number]
        assert sum(share.sampled for share in shares) == end + 1 == engine.trace.of(Ended)[0].new_tokens
        assert [len(t.token_seconds) for t in timings(engine.trace)] == [end + 1, 30]
        engines.append(engine)
    whole = [*prompt, *solo(tiny_model(tiny_config(L=1)), prompt, 40)]
    known = [[engine.cache.matched(whole[:n]) for n in range(1, len(whole))] for engine in engines]
    assert known[0] == known[1] and max(known[1]) == (len(prompt) + end) // 4 * 4


def test_ended_from_outside_while_in_flight():
    """C071: aborted and forgotten with a step under way: everything comes back, others go on."""
    model = tiny_model(tiny_config(L=1))
    engine = engine_of(model, overlap=True)
    first, second, third = (engine.add(random_ids(4, seed=i), max_new_tokens=9) for i in range(3))
    for _ in range(3):
        engine.step()
    engine.abort(first)
    engine.forget(second)
    assert_accounts(engine)
    run_out(engine)
    assert_all_came_back(engine)
    assert engine.results(third)[0].token_ids == solo(model, random_ids(4, seed=2), 9)
    assert engine.results(first)[0].token_ids == solo(model, random_ids(4, seed=0), 2)
    engine.abort(third)
    again = engine.add(random_ids(4, seed=0), max_new_tokens=9)
    assert [t for d in engine.stream(again) for t in d.token_ids] == list(solo(model, random_ids(4, seed=0), 9))


def test_stop_strings_are_seen_a_step_late():
    """And the text is cut where it is cut when the engine waits."""
    model = Scripted({2: 1, 3: 2, 4: 3, 5: 4}, eos_ids=(4,))
    model.tokenizer = pieces_tokenizer(["<0>", "ab", "cd", "ef", "!"] + [f"<{i}>" for i in range(5, 97)])
    engine = engine_of(model, overlap=True)
    stopped, ended = engine.add([9, 9, 9], stop="bcd"), engine.add([9, 9, 9])
    assert {n: "".join(d.text for d in engine.stream(n)) for n in (stopped, ended)} == {stopped: "a", ended: "abcdef"}
    assert [engine.results(n)[0].token_ids for n in (stopped, ended)] == [(1, 2), (1, 2, 3, 4)]


def test_a_first_token_that_ends_it(order):
    """C024: an end by the prompt's own token, by EOS or by length. For the second no further step is asked for; the first is counted once."""
    model = tiny_model(tiny_config(L=1))
    first = solo(model, [5, 6, 7], 1)[0]
    for eos, reason, asked in (((first,), "stop", 2), ((), "length", 1)):
        engine = engine_of(tiny_model(tiny_config(L=1, eos_ids=eos)), overlap=True)
        number, before = engine.add([5, 6, 7], max_new_tokens=9 if eos else 1), order.count("ask")
        deltas = run_out(engine)
        assert [(d.token_ids, d.finish_reason) for d in deltas] == [((first,), reason)]
        assert order.count("ask") - before == asked and engine.results(number)[0].token_ids == (first,)
        assert_all_came_back(engine)


def test_times_go_forward():
    """A step begins, for the device, when the one before has ended; events of a step stand together, as ever."""
    model = tiny_model(tiny_config(L=1))
    engine = engine_of(model, pages=9, overlap=True, clock=iter(range(10**6)).__next__)
    for i in range(6):
        engine.add(random_ids(6, seed=i), max_new_tokens=8)
    run_out(engine)
    steps = engine.trace.of(Stepped)
    assert all(a.time <= b.start < b.time for a, b in zip(steps, steps[1:])) and [s.step for s in steps] == list(range(len(steps)))
    times = [event.time for event in engine.trace.events]
    assert times == sorted(times) and engine.trace.of(Preempted)


def test_a_draw_on_the_border_of_two_tokens_is_no_fault() -> None:
    """Seed 4 draws 7e-8 from the border of tokens 23 and 24, less than a batch's rounding; any other token would be a fault."""
    model, prompt, sampling = tiny_model(tiny_config(L=1, eos_ids=(3, 4))), [60, 57, 82], Sampling(temperature=1.0, seed=4)
    alone = generate(model, [prompt], n=2, max_new_tokens=6, sampling=sampling)[0][1].token_ids
    assert alone[4] in (23, 24)
    other = (*alone[:4], 47 - alone[4], 1)
    assert tied(model, prompt, sampling, 1, other, alone) and not tied(model, prompt, sampling, 1, alone, alone)
    assert not tied(model, prompt, sampling, 1, (*alone[:4], 25), alone) and not tied(model, prompt, sampling, 0, other, alone)
    assert not tied(model, prompt, Sampling(), 0, (*alone[:4], 25), alone)
