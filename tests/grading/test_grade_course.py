"""A course of made-up submissions: none is lost, none gets a wrong score, a stopped run goes on."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from made_submissions import Made, Maker, special

from kvedu.grading.batch import Gradebook, grade_all
from kvedu.grading.running import Limits, Starter
from kvedu.grading.score import Score

LAB = "lab02"
LIMITS = Limits(timeout=45, memory=2 * 1024**3, cell=4)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Made]]:
    """A folder of submissions and what each must get."""
    folder = tmp_path_factory.mktemp("course")
    maker = Maker(LAB, seed=1)
    made = [make() for make in special(maker, "lab03").values()]
    made += [maker.right(), maker.right(), *(maker.wrong() for _ in range(4))]
    assert len(made) >= 24
    for number, one in enumerate(made):
        (folder / f"student{number:02d}.ipynb").write_bytes(one.data)
    return folder, {f"student{number:02d}.ipynb": one for number, one in enumerate(made)}


@pytest.fixture(scope="module")
def scores(course: tuple[Path, dict[str, Made]]) -> dict[str, Score]:
    """All of them graded, two at a time."""
    found: dict[str, Score] = {}
    starter = Starter(LIMITS)
    try:
        grade_all(sorted(course[0].iterdir()), starter, [11, 12], lab=LAB, jobs=2, done=lambda path, score: found.update({path.name: score}))
    finally:
        starter.close()
    return found


def test_none_is_lost_and_none_gets_a_wrong_score(course: tuple[Path, dict[str, Made]], scores: dict[str, Score]) -> None:
    """C004, C005: right, wrong, hanging, greedy, broken, lying, of another lab: each gets what it must."""
    wanted = {name: (made.kind, made.status, sorted(made.passed)) for name, made in course[1].items()}
    found = {
        name: (course[1][name].kind, score.status, sorted(part.name for part in score.parts if part.verdict.passed))
        for name, score in scores.items()
    }
    assert found == wanted, "\n".join(f"{wanted.get(n)}\n{found.get(n)}" for n in wanted if wanted[n] != found.get(n))


def test_the_report_names_what_failed(course: tuple[Path, dict[str, Made]], scores: dict[str, Score]) -> None:
    """C004: nothing says passed where a part failed."""
    for name, score in scores.items():
        results = json.loads(score.json())
        failed = {part.name for part in score.parts if not part.verdict.passed}
        assert {test["name"].split(":")[0] for test in results["tests"] if test["status"] == "failed"} == failed
        assert results["score"] == sum(test["score"] for test in results["tests"])
        if failed:
            assert f"not passed: {', '.join(part.name for part in score.parts if part.name in failed)}" in results["output"]
        assert score.status == "graded" or score.note


def test_what_hangs_is_cut_off(course: tuple[Path, dict[str, Made]], scores: dict[str, Score]) -> None:
    by_kind = {course[1][name].kind: score for name, score in scores.items()}
    assert any("did not end within 4 seconds" in error for error in by_kind["a busy cell"].errors)
    assert any("MemoryError" in error for error in by_kind["memory bit by bit"].errors)
    assert "did not end within" in str(by_kind["an answer that never ends"].parts[0].verdict)


def test_no_process_is_left(scores: dict[str, Score]) -> None:
    assert not [p for p in psutil.Process().children(recursive=True) if any("nursery" in word for word in p.cmdline())]
    sleepers = [p for p in psutil.process_iter(["cwd"]) if "kvedu-grade-" in (p.info["cwd"] or "")]
    assert not [p for p in sleepers if time.time() - p.create_time() > 2 * LIMITS.timeout]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """One command, stopped in the middle and given again: every submission is graded once, with the same seeds."""
    maker = Maker(LAB, seed=2)
    folder, out = tmp_path / "course", tmp_path / "grades"
    folder.mkdir()
    expected = {}
    for number in range(6):
        made = maker.right() if number % 2 else maker.wrong()
        (folder / f"s{number}.ipynb").write_bytes(made.data)
        expected[f"s{number}.ipynb"] = made
    command = [sys.executable, "-m", "kvedu.grade", str(folder), "--out", str(out), "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(list(out.glob("results/*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130 and "goes on where it was" in process.stderr.read()
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("results/*.json")}
    assert 2 <= len(before) < 6
    with (out / "grades.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(before)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{len(before)} of 6 were graded before" in done.stdout and "a minute" in done.stdout
    assert all((out / "results" / name).stat().st_mtime_ns == mtime for name, mtime in before.items())
    with (out / "grades.csv").open() as file:
        rows = {row["submission"]: row for row in csv.DictReader(file)}
    assert rows.keys() == expected.keys()
    for name, made in expected.items():
        assert {x for x, value in rows[name].items() if x.startswith("lab") and value == "1"} - {"lab"} == made.passed, made.kind


def test_a_changed_submission_is_graded_again(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_bytes(b"one")
    book = Gradebook(tmp_path / "out", tmp_path, None, None)
    book.store(tmp_path / "a.ipynb", Score("unreadable", "no"))
    assert Gradebook(tmp_path / "out", tmp_path, None, None).is_done(tmp_path / "a.ipynb")
    (tmp_path / "a.ipynb").write_bytes(b"two")
    assert not book.is_done(tmp_path / "a.ipynb")
    assert not Gradebook(tmp_path / "out", tmp_path, 5, None).is_done(tmp_path / "a.ipynb")
