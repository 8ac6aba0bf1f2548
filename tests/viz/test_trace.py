"""The trace player's counts are the metrics of the engine room, on real and on simulated-like traces."""

import json
from pathlib import Path

import pytest

from kvedu.engine import metrics
from kvedu.engine.guess_metrics import guessing
from kvedu.engine.trace import Admitted, Arrived, Ended, Preempted, Share, Stepped, Trace, Verified
from kvedu.viz import still, trace
from kvedu.viz.node import evaluate

FIGURES = Path(__file__).resolve().parents[2] / "book" / "figures"
STORED = [
    path
    for path in sorted(FIGURES.glob("*.json"))
    if "events" in json.loads(path.read_text("utf-8")).get("runs", [{}])[0]
]  # the player's data, whichever chapter it is for


def small() -> Trace:
    """Two sequences, two slots, a request of two copies, one preemption; times that are not alike."""
    return Trace([
        Arrived(1.0, 0, 5, 4, copies=2), Arrived(1.5, 1, 3, 3),
        Admitted(1.0, 0, 0, 0, False),
        Stepped(2.0, 1.0, 0, (Share(0, 0, 4, 0, False),), 1, 2, 0, 2),
        Stepped(2.5, 2.0, 1, (Share(0, 0, 1, 4, True),), 1, 3, 0, 1),
        Preempted(2.5, 0, 1, 5), Admitted(2.5, 1, 0, 0, False),
        Stepped(3.5, 2.5, 2, (Share(0, 0, 1, 5, True), Share(1, 0, 3, 0, True)), 1, 4, 0, 0),
        Ended(3.5, 0, 0, "stop", 2),
        Admitted(3.5, 0, 1, 0, True),
        Stepped(4.5, 3.5, 3, (Share(1, 0, 1, 3, True), Share(0, 1, 6, 0, True)), 0, 4, 0, 0),
        Ended(4.5, 1, 0, "stop", 2), Ended(4.5, 0, 1, "stop", 2),
    ])  # fmt: skip


def last_state(run: dict) -> dict:
    steps = sum(event["kind"] == "Stepped" for event in run["events"])
    return evaluate("trace", [("stateAt", [run, steps - 1])])[0]


def check_against_metrics(run: dict) -> None:
    """At the end of the run the script has counted what the library counts."""
    events = Trace.from_json("\n".join(json.dumps(event) for event in run["events"]))
    state = last_state(run)
    assert state["busyTime"] == pytest.approx(metrics.slot_utilization(events, run["slots"]), abs=1e-4)
    assert state["sampled"] == sum(len(timing.token_seconds) for timing in metrics.timings(events))
    assert state["computed"] == sum(share.tokens for step in events.of(Stepped) for share in step.shares)
    seen = guessing(events)
    assert [state[name] for name in ("rounds", "guessed", "accepted", "emitted")] == [seen.rounds, seen.guessed, seen.accepted, seen.emitted]


def test_counts_of_a_small_run() -> None:
    run = trace.run_of(small(), "small", slots=2)
    check_against_metrics(run)
    assert run["events"][0]["time"] == 0.0, "times start at the first event"
    assert last_state(run)["sampled"] == 6
    assert dict(evaluate("trace", [("slots", [run])])[0]) == {
        "0.0": [0, 0, 0], "1.0": [None, None, 1, 1], "0.1": [None, None, None, 0],
    }  # fmt: skip


def speculated() -> Trace:
    """Two sequences, one of which is guessed: 3 tokens of 3 guesses, then 1 of 4."""
    return Trace([
        Arrived(0.0, 0, 4, 6), Arrived(0.0, 1, 2, 3), Admitted(0.0, 0, 0, 0, False), Admitted(0.0, 1, 0, 0, False),
        Stepped(1.0, 0.0, 0, (Share(0, 0, 4, 0, True), Share(1, 0, 2, 0, True)), 0, 2, 0, 2),
        Stepped(2.0, 1.0, 1, (Share(0, 0, 1, 4, True), Share(1, 0, 1, 2, True)), 0, 3, 0, 1), Verified(2.0, 0, 0, 3, 3, 2, 3),
        Stepped(3.0, 2.0, 2, (Share(0, 0, 1, 7, True), Share(1, 0, 1, 3, True)), 0, 3, 0, 1), Verified(3.0, 0, 0, 4, 4, 0, 1),
        Ended(3.0, 1, 0, "length", 3), Ended(3.5, 0, 0, "abort", 5),
    ])  # fmt: skip


def test_rounds_of_speculation() -> None:
    """Tokens, guesses and what was kept are counted as the metrics count them, and said where they happen."""
    run = trace.run_of(speculated(), "guesses", slots=2)
    check_against_metrics(run)
    assert last_state(run)["sampled"] == 8
    shown = still("trace", trace.data([run], title="t", step=1))
    assert "2 of 3 guesses kept" in shown.say and "2 tokens a round" in shown.svg
    plain = still("trace", trace.data([trace.run_of(small(), "small", slots=2)], title="t", step=1))
    assert "guess" not in plain.say and "a round" not in plain.svg


def test_what_is_computed_again_is_prefill() -> None:
    """After preemption prompt and output are computed together; that is no decoding."""
    said = still("trace", trace.data([trace.run_of(small(), "small", slots=2)], title="t", step=3)).say
    assert "request 0 #2 prefills" in said and "request 1 decodes" in said
    said = still("trace", trace.data([trace.run_of(small(), "small", slots=2)], title="t", step=2)).say
    assert "sent back to make room: request 0 #2" in said and "4 of 4 blocks" in said


def test_empty_slots_of_blocks() -> None:
    """A shared block counts once, by its fullest user."""
    table = {"step": 0, "held": [[0, 0, 20, [4, 5]], [0, 1, 18, [4, 5]], [1, 0, 16, [7]]], "evictable": []}
    assert evaluate("trace", [("unfilled", [table, 16])]) == [12]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_runs_are_whole(path: Path) -> None:
    """Counts agree with the metrics; blocks are conserved; nobody holds more or fewer blocks than its tokens need."""
    data = json.loads(path.read_text("utf-8"))
    for run in data["runs"]:
        check_against_metrics(run)
        steps = [event for event in run["events"] if event["kind"] == "Stepped"]
        for step, table in zip(steps, run.get("tables", []), strict=False):
            used = {block for _, _, _, blocks in table["held"] for block in blocks}
            assert len(used) == step["blocks_in_use"] and len(table["evictable"]) == step["blocks_evictable"]
            assert not used & set(table["evictable"]) and used <= set(range(data["n_blocks"]))
            assert step["blocks_in_use"] + step["blocks_evictable"] + step["blocks_free"] == data["n_blocks"]
            for _, _, tokens, blocks in table["held"]:
                assert len(blocks) == -(-tokens // data["block_size"])
        if "tables" in run:
            assert len(run["tables"]) == len(steps)
        for at in {0, len(steps) // 2, len(steps) - 1}:
            for rows in ("sequences", "slots"):
                shown = still("trace", data, {"run": run["name"], "step": at, "rows": rows, "by": "seconds"}, 320)
                assert "NaN" not in shown.svg and shown.say.endswith(".")
