"""Who goes first: the orders, and the bounds on waiting that their docstrings state."""

import pytest

from engines import assert_all_came_back, engine_of, run_out, solo
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.engine.order import LongestPrefix, by_priority, first_come, static
from kvedu.engine.simulate import simulate
from kvedu.engine.trace import Admitted, Ended, Preempted, Stepped
from kvedu.engine.workload import Arrival
from kvedu.errors import RequestError
from tiny import random_ids, tiny_model


def admitted(trace):
    return [e.request for e in trace.of(Admitted) if not e.again]


@pytest.mark.parametrize("reuse", [HashReuse, RadixReuse])
def test_the_longest_match_goes_first(reuse):
    """What is remembered decides, not the arrival: of five that wait, those that continue the last text come first."""
    model = tiny_model()
    engine = engine_of(model, max_running=1, reuse=reuse, order=LongestPrefix())
    known, other = random_ids(12), random_ids(12, seed=9)
    engine.generate([known], max_new_tokens=1)
    prompts = [other, known[:5] + [1, 2], other[:4], [*known, 5], known[:9]]
    numbers = [engine.add(p, max_new_tokens=2) for p in prompts]
    run_out(engine)
    assert admitted(engine.trace)[1:] == [numbers[i] for i in (3, 4, 1, 0, 2)]
    assert [engine.results(n)[0].token_ids for n in numbers] == [solo(model, p, 2) for p in prompts]
    assert_all_came_back(engine)


def groups(n, texts=8, shared=64):
    """Requests of several kinds in turn, all at once; those of a kind share a beginning."""
    return [Arrival(0.0, tuple(range(100 * (i % texts), 100 * (i % texts) + shared)) + (7, i, i + 1), 4) for i in range(n)]


def test_common_beginnings_run_together_and_more_is_found():
    """In a cache that holds two of eight beginnings, arrival order finds next to nothing and the longest match nearly all."""
    found = {}
    for name, order in (("first come", first_come), ("longest prefix", LongestPrefix(patience=1000))):
        trace = simulate(
            groups(64), lambda plan: 1.0, n_blocks=12, page_size=16, reuse=RadixReuse, max_running=1, order=order
        )
        found[name] = sum(e.reused for e in trace.of(Admitted)) / 64 / 67
        assert len(trace.of(Ended)) == 64
    assert found["first come"] < 0.1 and found["longest prefix"] > 0.8


@pytest.mark.parametrize("patience", [0, 1, 5])
@pytest.mark.parametrize("slots", [1, 3])
def test_nobody_is_overtaken_more_often_than_the_docstring_says(patience, slots):
    """A stranger among endless requests that all match what is remembered: exactly ``patience`` of them pass it."""
    popular = tuple(range(32))
    arrivals = [Arrival(0.0, (*popular, i), 3) for i in range(4)]
    arrivals += [Arrival(0.5, tuple(range(500, 520)), 3)]
    arrivals += [Arrival(0.6 + 0.4 * i, (*popular, 50 + i), 3) for i in range(80)]
    trace = simulate(
        arrivals, lambda plan: 1.0, n_blocks=40, page_size=4, reuse=HashReuse, max_running=slots,
        order=LongestPrefix(patience=patience),
    )
    line = admitted(trace)
    assert len(line) == 85
    for place, number in enumerate(line):
        assert sum(later > number for later in line[:place]) <= patience, number
    stranger = line.index(4)
    assert sum(later > 4 for later in line[:stranger]) == patience


def test_only_the_longest_waiting_are_compared():
    arrivals = groups(20, texts=20) + [Arrival(0.0, tuple(range(64)) + (9, 9), 4)]
    trace = simulate(
        arrivals, lambda plan: 1.0, n_blocks=200, page_size=16, reuse=HashReuse, max_running=1, order=LongestPrefix(look=4)
    )
    assert admitted(trace)[:17] == list(range(17))  # the match stands at place 20 and comes into view after 16 have gone
    assert admitted(trace)[17] == 20


def test_without_reuse_it_is_first_come():
    traces = [
        simulate(groups(20), lambda plan: 1.0, n_blocks=60, max_running=2, order=order)
        for order in (first_come, LongestPrefix())
    ]
    assert traces[0] == traces[1]


def test_what_is_refused():
    for wrong in (dict(patience=-1), dict(look=0)):
        with pytest.raises(RequestError, match="patience"):
            LongestPrefix(**wrong)


def test_priority_goes_first_and_is_preempted_last():
    """The smallest number runs; when blocks run out the largest is sent back, whenever it came."""
    model = tiny_model()
    engine = engine_of(model, max_running=1, order=by_priority)
    late, early = engine.add([1], max_new_tokens=2, priority=5), engine.add([2], max_new_tokens=2, priority=1)
    run_out(engine)
    assert [e.request for e in engine.trace.of(Ended)] == [early, late]
    engine = engine_of(model, pages=9, page_size=2, order=by_priority)
    first = engine.add(random_ids(6), max_new_tokens=9, priority=2)
    engine.step()
    urgent = engine.add(random_ids(6, seed=1), max_new_tokens=9, priority=1)
    run_out(engine)
    assert {e.request for e in engine.trace.of(Preempted)} == {first}
    assert [e.request for e in engine.trace.of(Ended)] == [urgent, first]


def test_a_static_batch_lets_nobody_in_before_its_last_has_ended():
    """A7.1's other half: batches of two that need 4, 2, 3, 1, 2 tokens run 4, 3 and 2 steps, with the empty slots between."""
    engine = engine_of(tiny_model(), max_running=2, admit=static)
    wanted = (4, 2, 3, 1, 2)
    for i, n in enumerate(wanted):
        engine.add(random_ids(3, seed=i), max_new_tokens=n)
    run_out(engine)
    steps = engine.trace.of(Stepped)
    assert [len(step.shares) for step in steps] == [2, 2, 1, 1, 2, 1, 1, 1, 1]
    ends = {e.request: e.time for e in engine.trace.of(Ended)}
    for batch in ((0, 1), (2, 3)):
        after = min(e.time for e in engine.trace.of(Admitted) if e.request > batch[1])
        assert after >= max(ends[number] for number in batch)
    assert [len(engine.results(i)[0].token_ids) for i in range(5)] == list(wanted)


def test_endless_arrivals_starve_nobody():
    """Must hold 4: a trickle that never ends, prompts of any length. A running decode is in every step; the line moves in order."""
    arrivals = [Arrival(0.0, tuple(range(10)), 60)]
    arrivals += [Arrival(0.7 * i, tuple(range(3 * i, 3 * i + 5 + 37 * (i % 3))), 5) for i in range(200)]
    trace = simulate(arrivals, lambda plan: 1.0, n_blocks=60, page_size=4, max_running=6, token_budget=16)
    assert len(trace.of(Ended)) == 201
    steps, decoding = trace.of(Stepped), {}
    sent_back = [(e.time, e.request) for e in trace.of(Preempted)]
    for step in steps:
        for number in list(decoding):
            if (step.start, number) in sent_back:
                del decoding[number]
        shares = {share.request: share for share in step.shares}
        assert set(decoding) <= set(shares), "a decode was left out of a step"
        assert sum(share.tokens for share in step.shares) <= 16
        for number, share in shares.items():
            if share.sampled:
                decoding[number] = step.step
        for e in trace.of(Ended):
            if e.time == step.time:
                decoding.pop(e.request, None)
    line = admitted(trace)
    assert line == sorted(line, key=lambda number: (arrivals[number].time, number))
