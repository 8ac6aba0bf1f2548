"""Workloads: seeded, with the rates, means and shared parts that they state."""

import statistics
from random import Random

import pytest

from kvedu.engine.workload import (
    Arrival,
    agents,
    all_at_once,
    bimodal,
    bursts,
    closed,
    conversations,
    independent,
    lognormal,
    poisson,
    serving_mix,
    uniform,
)
from kvedu.errors import KveduError


def draws(lengths, n=20_000, seed=1):
    rng = Random(seed)
    return [lengths(rng) for _ in range(n)]


def test_serving_mix_is_the_one_of_the_bench():
    mix = serving_mix()
    assert len(mix) == 48 and {a.time for a in mix} == {0.0}
    assert sum(len(a.prompt_ids) for a in mix) == 12_781
    assert sum(a.max_new_tokens for a in mix) == 3_693
    shared = mix[1].prompt_ids[:256]
    assert [a.prompt_ids[:256] == shared for a in mix] == [False, True] * 24
    assert serving_mix(8) != mix == serving_mix(7)


def test_poisson_has_its_rate_and_exponential_gaps():
    times = poisson(20_000, per_second=4.0, seed=3)
    gaps = [b - a for a, b in zip([0.0, *times], times)]
    assert times == sorted(times) and times == poisson(20_000, 4.0, 3) != poisson(20_000, 4.0, 4)
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.03)


def test_bursts_and_all_at_once():
    assert bursts(5, size=2, gap_seconds=3.0) == [0.0, 0.0, 3.0, 3.0, 6.0]
    assert all_at_once(3) == [0.0] * 3


def test_lengths_have_their_means():
    assert set(draws(uniform(3, 5))) == {3, 4, 5}
    chat = draws(lognormal(200, 0.8))
    assert statistics.mean(chat) == pytest.approx(200, rel=0.03)
    assert statistics.median(chat) == pytest.approx(200 / 2.718281828 ** (0.8**2 / 2), rel=0.03)
    assert max(draws(lognormal(200, 0.8, longest=300))) == 300 and min(draws(lognormal(1, 2.0))) == 1
    two = draws(bimodal(uniform(1, 9), uniform(100, 109), long_share=0.2))
    assert sum(n >= 100 for n in two) / len(two) == pytest.approx(0.2, abs=0.01)
    assert not any(9 < n < 100 for n in two)


def test_a_turn_holds_all_that_was_said_before():
    chats = conversations([0.0, 5.0], uniform(3, 3), uniform(4, 9), uniform(2, 6), system_tokens=(7,), pause_seconds=2.0)
    assert [a.after for a in chats] == [None, 0, 1, None, 3, 4]
    assert [chats[0].time, chats[3].time] == [0.0, 5.0]
    for earlier, later in ((0, 1), (1, 2), (3, 4), (4, 5)):
        history = chats[earlier].prompt_ids + chats[earlier].reply_ids
        assert chats[later].prompt_ids[: len(history)] == history and len(chats[later].prompt_ids) >= len(history) + 4
        assert chats[earlier].max_new_tokens == len(chats[earlier].reply_ids)
    assert chats[0].prompt_ids[:7] == chats[3].prompt_ids[:7] != chats[0].prompt_ids[7:14]


def test_agents_of_a_kind_share_their_tools():
    starts = [a.prompt_ids[:50] for a in agents(poisson(40, 1.0), tool_tokens=(50, 60)) if a.after is None]
    assert len(starts) == 40 and len(set(starts)) == 2


def test_closed_load_keeps_its_number_of_clients():
    load = closed(independent(poisson(5, 1.0), uniform(1, 2), uniform(1, 2)), clients=2, pause_seconds=0.5)
    assert [(a.after, a.time) for a in load] == [(None, 0.0), (None, 0.0), (0, 0.5), (1, 0.5), (2, 0.5)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Arrival(-1.0, (1,), 1),
        lambda: Arrival(float("nan"), (1,), 1),
        lambda: Arrival(0.0, (), 1),
        lambda: Arrival(0.0, (1,), 0),
        lambda: poisson(1, 0.0),
        lambda: bursts(1, 0, 1.0),
        lambda: uniform(0, 3),
        lambda: uniform(4, 3),
        lambda: lognormal(0.5, 1.0),
        lambda: bimodal(uniform(1, 1), uniform(2, 2), 1.5),
        lambda: closed([Arrival(0.0, (1,), 1)], 0),
        lambda: closed([Arrival(0.0, (1,), 1), Arrival(0.0, (1,), 1, after=0)], 1),
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(KveduError):
        wrong()
