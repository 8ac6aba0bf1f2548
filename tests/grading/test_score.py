"""From reports to a score: an answer must be right on every set of inputs, and no report is believed."""

from typing import Any

import pytest

from kvedu.grading.find import find_exercise
from kvedu.grading.judge import Known
from kvedu.grading.observe import Stopped, outcomes
from kvedu.grading.score import Score, score_events

NAME = "lab02.bytes_per_token"
SEEDS = (5, 6)


def right(c: Any, b: int) -> int:
    return 2 * c.L * c.K * c.D * b


def seen(answer: Any, *seeds: int) -> list[Any]:
    return [outcomes(find_exercise(NAME), answer, seed) for seed in seeds]


def scored(*events: Any) -> Score:
    named = [{"event": "seen", "name": NAME, "seen": event} if not isinstance(event, dict) else event for event in events]
    return score_events("lab02", named, [Known(seed) for seed in SEEDS], cut_off=False, seconds=1)


def passes(*events: Any) -> bool:
    return scored(*events).parts[0].verdict.passed


GOOD, BAD = seen(right, *SEEDS), seen(lambda c, b: 0, *SEEDS)


@pytest.mark.parametrize(
    ("reports", "good"),
    [
        ([GOOD], True),
        ([BAD], False),
        ([[GOOD[0], BAD[1]]], False),
        ([[BAD[0], GOOD[1]]], False),
        ([[GOOD[1], GOOD[0]]], False),
        ([GOOD[:1]], False),
        ([BAD, GOOD], True),
        ([GOOD, BAD], True),
        ([[GOOD[0], BAD[1]], [BAD[0], GOOD[1]]], False),
        ([[[Stopped()]]], False),
    ],
)
def test_an_answer_is_right_on_all_inputs_at_one_moment(reports: list[Any], good: bool) -> None:
    assert passes(*reports) == good


@pytest.mark.parametrize("junk", [None, 3, [], [3, 4], [[], []], {}, "text", [[None] * 14, [None] * 14], [["x"] * 99, []]])
def test_a_report_that_makes_no_sense_is_wrong_and_harms_nobody(junk: Any) -> None:
    assert not passes({"event": "seen", "name": NAME, "seen": junk})
    assert passes({"event": "seen", "name": NAME, "seen": junk}, GOOD)


def test_unknown_exercises_and_events_change_nothing() -> None:
    score = scored({"event": "seen", "name": "lab09.x", "seen": GOOD}, {"event": "cell", "number": "many"}, {"event": "error", "number": [], "text": 3}, GOOD)
    assert score.score == 1 and score.status == "crashed" and len(score.errors) == 1
