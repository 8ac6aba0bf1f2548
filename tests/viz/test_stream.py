"""The stream figure: what a window holds is what the cache holds, losses and shares are sums that Python can do too."""

import json
import math
from pathlib import Path

import pytest
import torch

from kvedu.analysis.known_models import known_model
from kvedu.caches.streaming import StreamingCache
from kvedu.viz import still, stream
from kvedu.viz.node import evaluate

CONFIG = known_model("SmolLM2-135M").config
STORED = Path(__file__).resolve().parents[2] / "book" / "figures" / "15_stream.json"


@pytest.mark.parametrize("sinks", [0, 1, 4])
@pytest.mark.parametrize("window", [1, 3, 8])
def test_a_window_holds_what_the_cache_holds(sinks, window):
    """At every length, from before the cache is full to long after."""
    cache = StreamingCache(CONFIG, window=window, sinks=sinks, n_layers=1)
    seq, wanted = cache.add(), []
    for count in (1, 2, 3, 1, 5, 4):
        n = cache.seen(seq)
        with cache.step({seq: count}) as view:
            held = view.gather(0, seq)[2].tolist()  # before the step's own tokens
            wanted.append((n, stream.ranges(held)))
            rows = torch.zeros(count, CONFIG.K, CONFIG.D)
            view.append(0, rows, rows)
    got = evaluate("stream", [("windowHolds", [n, sinks, window]) for n, _ in wanted])
    assert got == [ranges for _, ranges in wanted]


def test_shares_and_perplexities():
    pairs, ranges = [[0, 0.5], [3, 0.2], [7, 0.1]], [[3, 5], [6, 8]]
    loss = [0.5, 1.5, 2.0, 4.0]
    calls = [("lost", [pairs, ranges]), ("lost", [pairs, [[0, 9]]]), ("perplexity", [loss, 5, 2]), ("perplexity", [loss, 5, 9]), ("perplexity", [loss, 2, 9])]
    wanted = [0.5 / 0.8, 0, math.exp(3), math.exp(2), math.exp(0.5)]
    assert evaluate("stream", calls) == pytest.approx(wanted)


def test_small_weights_are_left_out():
    assert stream.looks(torch.tensor([0.5, 0.0039, 0.004, 0.4921])) == [[0, 0.5], [2, 0.004], [3, 0.492]]


def test_what_it_says():
    looks = [[[0, 1.0]], [[0, 0.75], [3, 0.25]]]
    held = [[[[0, 2]], [[0, 1], [3, 4]]]]
    data = stream.data(
        ["a", " b", " c", " d"], 2, [1.0, 1.0, 1.0],
        [stream.policy("the last 2", [1.0, 1.0, 3.0], 2, sinks=0), stream.policy("by lot", [1.0, 1.0, 2.0], 2, held=held)],
        [("a head", looks)], step=1,
    )
    said = still("stream", data).say
    assert "after 4 tokens: 2 tokens dropped; held are tokens 2 to 3." in said and "75 % of its attention" in said
    assert "held are tokens 0 and 3." in still("stream", data, {"policy": 1}).say and "“d”" in said
    assert "nothing is dropped yet" in still("stream", data, {"step": 0}).say


def test_the_stored_run_is_whole():
    """Losses for each token, what is held within the budget and in order, attention that sums to nearly 1."""
    data = json.loads(STORED.read_text("utf-8"))
    T, steps = len(data["tokens"]), len(data["tokens"]) // data["chunk"]
    assert len(data["full"]) == T - 1 and all(len(p["loss"]) == T - 1 for p in data["policies"])
    for policy in data["policies"]:
        for by_step in policy.get("held", []):
            assert len(by_step) == steps
            for step, ranges in enumerate(by_step):
                assert sum(to - start for start, to in ranges) == min(policy["budget"], (step + 1) * data["chunk"])
                assert all(a[1] < b[0] for a, b in zip(ranges, ranges[1:])) and ranges[-1][1] == (step + 1) * data["chunk"]
    for head in data["heads"]:
        assert all(0.7 < sum(w for _, w in looks) < 1.01 for looks in head["attention"])
