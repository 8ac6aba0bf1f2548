"""The board of one's own runs."""

from pathlib import Path

import pytest

import kvedu
from kvedu.errors import KveduError
from kvedu.grading.leaderboard import runs_file, shown


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this test's own."""
    monkeypatch.setenv("KVEDU_PROGRESS", str(tmp_path / "deep" / "progress.json"))


def test_the_best_run_comes_first_and_this_one_is_marked() -> None:
    kvedu.leaderboard("lab01.x", label="doubling", copied=1000, reserved=3)
    kvedu.leaderboard("lab01.x", label="by half", copied=2000, reserved=1)
    board = kvedu.leaderboard("lab01.x", label="tie", copied=1000, reserved=2)
    assert [row[0] for row in board.rows] == ["tie", "doubling", "by half"] and board.this == 1
    assert str(board).splitlines()[1].split() == ["1", "←", "this", "run", "tie", "1,000", "2"]
    assert kvedu.leaderboard("lab01.y", speed=1).this == 1
    kvedu.leaderboard("lab01.y", highest=True, speed=5)
    assert kvedu.leaderboard("lab01.y", highest=True, speed=2).this == 2
    assert "<td>by half</td>" in board._repr_html_()


def test_the_head_is_a_head_and_nobody_named_a_run_is_no_column() -> None:
    board = kvedu.leaderboard("lab01.x", rows_copied=1000, share=2 / 3)
    assert str(board).splitlines() == ["place         rows copied  share", "1 ← this run  1,000        0.667"]
    assert '<th scope="col">place</th><th scope="col">rows copied</th>' in board._repr_html_() and "tried" not in board._repr_html_()
    kvedu.leaderboard("lab01.x", label="named", rows_copied=999, share=0.5)
    assert str(kvedu.leaderboard("lab01.x", rows_copied=1000, share=2 / 3)).split()[:2] == ["place", "tried"]


@pytest.mark.parametrize(("value", "text"), [(0.820513, "0.821"), (22016.0, "22,016"), (0.0, "0"), (1234.5, "1,234"), (2e7, "20,000,000")])
def test_how_a_measure_is_shown(value: float, text: str) -> None:
    assert shown(value) == text


def test_the_same_run_is_noted_once_and_a_low_place_is_still_shown() -> None:
    for value in [*range(20), 7]:
        board = kvedu.leaderboard("lab01.x", value=value)
    assert len(board.rows) == 20 and board.this == 8
    board = kvedu.leaderboard("lab01.x", value=99)
    assert str(board).splitlines()[-1].startswith("21 ← this run") and len(str(board).splitlines()) == 12


@pytest.mark.parametrize("text", ["", "[]", '{"lab01.x": 3}', '{"lab01.x": [{"label": 1}]}'])
def test_a_broken_file_stops_nobody(text: str) -> None:
    runs_file().parent.mkdir()
    runs_file().write_text(text)
    assert kvedu.leaderboard("lab01.x", value=1).this == 1


def test_a_run_without_a_measure_is_refused() -> None:
    with pytest.raises(KveduError, match="at least one measure"):
        kvedu.leaderboard("lab01.x")
