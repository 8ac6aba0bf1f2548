"""What a trace says of speculation, worked out by hand; times, places and JSON with rounds of several tokens."""

import math

import pytest

from engines import engine_of, run_out
from kvedu.engine.depths import Full
from kvedu.engine.guess_metrics import guessing
from kvedu.engine.metrics import output_tokens_per_second, timings
from kvedu.engine.occupancy import occupancy
from kvedu.engine.trace import Arrived, Ended, Trace, Verified
from test_metrics import stepped
from test_speculating import Told, texts_of
from test_speculative_laws import looping_model
from tiny import random_ids


def two_requests() -> Trace:
    """Request 0 gets 1 token at 2, 3 at 3 (2 of 3 guesses), 1 at 5 (0 of 2); request 1 decodes plainly."""
    return Trace([
        Arrived(1.0, 0, 4, 5), Arrived(1.0, 1, 2, 3),
        stepped(1.0, 2.0, (0, 0, 4, 0, True), (1, 0, 2, 0, True)),
        stepped(2.0, 3.0, (0, 0, 1, 4, True), (1, 0, 1, 2, True)), Verified(3.0, 0, 0, 3, 3, 2, 3),
        stepped(3.0, 5.0, (0, 0, 1, 7, True), (1, 0, 1, 3, True)), Verified(5.0, 0, 0, 2, 2, 0, 1),
        Ended(5.0, 0, 0, "length", 5), Ended(5.0, 1, 0, "length", 3),
    ])  # fmt: skip


def test_rounds_by_hand():
    seen = guessing(two_requests())
    assert (seen.rounds, seen.guessed, seen.accepted, seen.emitted) == (2, 5, 2, 4)
    assert (seen.tokens_per_round, seen.acceptance_rate) == (2.0, 0.4)
    assert seen.by_depth == (0.5, 1.0, 0.0), "two guessed at depth 1; one of them kept all before depth 2, and before depth 3"
    assert guessing(two_requests(), 1).rounds == 0 and math.isnan(guessing(two_requests(), 1).tokens_per_round)


def test_times_and_rates_count_every_token():
    first, second = timings(two_requests())
    assert first.token_seconds == (2.0, 3.0, 3.0, 3.0, 5.0) and second.token_seconds == (2.0, 3.0, 5.0)
    assert first.itl_seconds == (1.0, 0.0, 0.0, 2.0) and output_tokens_per_second(two_requests()) == 8 / 4


def test_kept_guesses_are_held():
    assert [row.tokens for row in occupancy(two_requests(), 4)] == [6, 7 + 3, 0]


def test_json_brings_the_rounds_back():
    assert Trace.from_json(two_requests().to_json()).events == two_requests().events


@pytest.mark.parametrize("right, siblings", [(99, False), (2, True), (0, False)])
def test_a_real_trace_agrees_with_the_engine(right, siblings):
    """Tokens in the trace are those of the completions, rounds those of the engine, places those of the block tables."""
    model = looping_model()
    prompts = [random_ids(3 + i, seed=i) for i in range(3)]
    engine = engine_of(model, pages=90, page_size=2, speculate=Told(texts_of(model, prompts, 17), 4, right, siblings), depths=Full(), token_budget=90)
    held = []
    numbers = [engine.add(p, max_new_tokens=17, speculate=i != 1) for i, p in enumerate(prompts)]
    while not engine.idle:
        engine.step()
        held.append(sum(s.computed for s in engine.scheduler.running))
    trace = Trace.from_json(engine.trace.to_json())
    assert [row.tokens for row in occupancy(trace, 2)] == held
    assert [len(t.token_seconds) for t in timings(trace)] == [17] * 3
    rounds = [r for n in numbers for r in engine.rounds(n)[0]]
    seen = guessing(trace)
    assert (seen.rounds, seen.accepted, seen.emitted) == (len(rounds), sum(r.accepted for r in rounds), sum(r.emitted for r in rounds)) and seen.emitted == 32
    run_out(engine)
