"""``python -m kvedu.grade`` for one notebook: the report, the file for Gradescope, exit codes, and what is kept out."""

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from made_submissions import Maker, notebook, with_answer

from kvedu.grade import main
from kvedu.grading.batch import grade_all
from kvedu.grading.find import exercises
from kvedu.grading.running import Limits, Starter
from kvedu.grading.score import Score
from kvedu.grading.submission import Unreadable, read_submission

LAB = "lab02"


@pytest.fixture(scope="module")
def maker() -> Maker:
    return Maker(LAB)


def graded(path: Path, *, warm: bool | None = None, timeout: float = 90) -> Score:
    scores: list[Score] = []
    starter = Starter(Limits(timeout=timeout), warm=warm)
    try:
        grade_all([path], starter, [5, 6], done=lambda path, score: scores.append(score))
    finally:
        starter.close()
    (score,) = scores
    return score


def small(*cells: str) -> bytes:
    """A notebook of lab 2 without the lab's own cells."""
    return notebook(['"lab02.bytes_per_token"', *cells], LAB)


RIGHT = "def bytes_per_token(c, b):\n    return 2 * c.L * c.K * c.D * b"


def passed(score: Score) -> list[str]:
    return [part.name for part in score.parts if part.verdict.passed]


def test_one_notebook(tmp_path: Path) -> None:
    """C004, C005: an answer with another name in the way, one that is missing; the failing tests are named."""
    path = tmp_path / "a.ipynb"
    path.write_bytes(small(RIGHT, "users_that_fit = 3", "bytes_per_token = None\n1 / 0"))
    command = [sys.executable, "-m", "kvedu.grade", str(path), "--lab", "02", "--seed", "3", "--json", str(tmp_path / "out" / "results.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "lab02: 1 of 4 points, graded" in done.stdout and "ZeroDivisionError" in done.stdout
    assert "not passed: lab02.models_that_show" in done.stdout
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["score"] == 1 and len(results["tests"]) == len(exercises("lab02"))
    states = {test["name"].split(":")[0]: test["status"] for test in results["tests"]}
    assert states.pop("lab02.bytes_per_token") == "passed" and set(states.values()) == {"failed"}
    for key in ("score", "output", "visibility", "execution_time", "tests"):
        assert key in results
    assert all({"name", "score", "max_score", "output", "status"} <= test.keys() for test in results["tests"])


@pytest.mark.parametrize(
    ("data", "arguments", "code", "says"),
    [
        (b"{", [], 3, "is not a notebook"),
        (b"[]", [], 3, "is not a notebook"),
        (b'{"cells": 3}', [], 3, "is not a notebook"),
        (b"[" * 100_000, [], 3, "is not a notebook"),
        (b"", [], 3, "the file is empty"),
        (b'{"cells": []}', [], 3, "is of no lab"),
        (b'{"cells": []}', ["--lab", "2"], 3, "has no code"),
        (small("x = 1"), ["--lab", "lab03"], 3, "a notebook of lab02, and lab03 was wanted"),
        (small("x = 1"), ["--lab", "77"], 2, "there is no lab77"),
        (small("x = 1"), ["--lab", "two"], 2, "named by its number"),
        (small("x = 1"), ["--memory", "lots"], 2, "a size is like 4G"),
        (small("x = 1"), ["--timeout", "0"], 2, "must be above 0"),
    ],
)
def test_what_cannot_be_graded_is_told_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture, data: bytes, arguments: list[str], code: int, says: str
) -> None:
    (tmp_path / "a.ipynb").write_bytes(data)
    try:
        got = main([str(tmp_path / "a.ipynb"), *arguments])
    except SystemExit as usage:
        got = usage.code
    out = capsys.readouterr()
    assert got == code and says in out.out + out.err


def test_a_lab_is_known_by_its_title_too(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_bytes(notebook(["x = 1"], "lab03"))
    assert read_submission(tmp_path / "a.ipynb").lab == "lab03"
    with pytest.raises(Unreadable, match="lab03, and lab01"):
        read_submission(tmp_path / "a.ipynb", "lab01")


def test_memorized_outputs_fail(tmp_path: Path, maker: Maker) -> None:
    """Answers that hold the outputs of the models that everybody knows, and of nothing else."""
    source = (
        "def bytes_per_token(c, b):\n    table = {(30, 9): 17280, (30, 3): 5760, (30, 1): 1920, (36, 8): 36 * 8 * 128}\n"
        "    return table.get((c.L, c.K), 0) * 2 * b // (3 if c.L == 30 else 1)"
    )
    (tmp_path / "a.ipynb").write_bytes(notebook(with_answer(maker.cells, "lab02.bytes_per_token", source), LAB))
    score = graded(tmp_path / "a.ipynb")
    (part,) = [part for part in score.parts if part.name == "lab02.bytes_per_token"]
    assert not part.verdict.passed and set(passed(score)) == maker.all - {part.name}


def test_the_network_is_out_of_reach(tmp_path: Path) -> None:
    """A server on this machine gets no visitor, where the system can take the network away."""
    server = socket.create_server(("127.0.0.1", 0))
    visits: list[object] = []
    threading.Thread(target=lambda: visits.append(server.accept()), daemon=True).start()
    port = server.getsockname()[1]
    cell = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=5)\n{RIGHT}"
    (tmp_path / "a.ipynb").write_bytes(small(cell))
    score = graded(tmp_path / "a.ipynb")
    if "network" not in score.isolation.split(";")[0]:
        pytest.skip(f"this system: {score.isolation}")
    assert not visits and not passed(score) and any("cell 3" in error for error in score.errors)


def test_the_folder_and_the_environment_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    monkeypatch.chdir(tmp_path)
    cell = "import os\nassert 'SOME_TOKEN' not in os.environ and not [name for name in os.listdir('.') if name[0] != '.']\nopen('here', 'w').write('x')\n" + RIGHT
    (tmp_path / "a.ipynb").write_bytes(small(cell))
    score = graded(tmp_path / "a.ipynb")
    assert passed(score) == ["lab02.bytes_per_token"], score.report()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ipynb"]


def test_magics_work_and_check_does_not_stop_a_cell(tmp_path: Path) -> None:
    """C039: a cell with an unknown magic is an error of that cell, and counts for nothing."""
    check = "kvedu.check('lab02.bytes_per_token', None)\nkvedu.check('lab02.bytes_per_token', mine)"
    cells = ["%matplotlib inline\nget_ipython()", "%no_such_magic\nx = 1", "import kvedu", RIGHT.replace("bytes_per_token", "mine"), check, "y = x"]
    (tmp_path / "a.ipynb").write_bytes(small(*cells))
    score = graded(tmp_path / "a.ipynb")
    assert passed(score) == ["lab02.bytes_per_token"]
    assert [error.split(":")[0] for error in score.errors] == ["cell 4", "cell 8"]


def test_without_a_warm_process(tmp_path: Path) -> None:
    """As on systems without a safe fork: a new Python for each, the same scores."""
    (tmp_path / "a.ipynb").write_bytes(small(RIGHT))
    score = graded(tmp_path / "a.ipynb", warm=False)
    assert score.status == "graded" and passed(score) == ["lab02.bytes_per_token"]


def test_a_grader_that_is_killed_takes_its_submissions_along(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_bytes(small("import time\ntime.sleep(1000)"))
    process = subprocess.Popen([sys.executable, "-m", "kvedu.grade", str(tmp_path / "a.ipynb")], stdout=subprocess.DEVNULL)
    started = psutil.Process(process.pid)
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not any("kvedu-grade-" in _folder_of(child) for child in children):
        children = started.children(recursive=True)
        time.sleep(0.2)
    process.kill()
    process.wait()
    psutil.wait_procs(children, timeout=20)
    assert children and not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def _folder_of(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except psutil.Error:
        return ""
