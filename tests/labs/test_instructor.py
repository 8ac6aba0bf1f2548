"""A course's files: nbgrader's own preprocessors make the learner's notebook of them, and the autograder writes results."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from build_instructor import ROOT, build_gradescope, build_nbgrader
from labs_master import STUB, Lab, read_master, tags_of
from made_submissions import notebook
from nbgrader.preprocessors import CheckCellMetadata, ClearHiddenTests, ClearSolutions, LockCells
from nbgrader_course import source_version
from traitlets.config import Config

from kvedu.grading.find import exercises, find_exercise, labs

MASTERS = {f"lab{path.name[:2]}": path for path in sorted((ROOT / "labs" / "masters").glob("[0-9][0-9]_*.py"))}
GRADED = [lab for lab in MASTERS if lab in labs()]


@pytest.fixture(scope="module", params=GRADED)
def lab(request: pytest.FixtureRequest) -> tuple[str, Lab]:
    return request.param, read_master(MASTERS[request.param])


def released(lab: Lab) -> nbformat.NotebookNode:
    """What nbgrader gives to learners."""
    config = Config({"ClearSolutions": {"code_stub": {"python": STUB}}})
    made, resources = source_version(lab), {"language": "python", "nbgrader": {}}
    nbformat.validate(made)
    for step in (CheckCellMetadata, LockCells, ClearSolutions, ClearHiddenTests):
        made, resources = step(config=config).preprocess(made, resources)
    return made


def code(notebook: nbformat.NotebookNode) -> list[str]:
    return [line for cell in notebook.cells if cell.cell_type == "code" for line in cell.source.splitlines()]


def test_nbgrader_releases_the_learners_notebook(lab: tuple[str, Lab]) -> None:
    """Its ClearSolutions and ClearHiddenTests leave exactly what the builder gives to learners."""
    assert code(released(lab[1])) == code(lab[1].learner)


def test_every_exercise_is_a_test_cell_with_its_points(lab: tuple[str, Lab]) -> None:
    marks = [cell.metadata.get("nbgrader") for cell in source_version(lab[1]).cells]
    points = {mark["grade_id"]: mark["points"] for mark in marks if mark and mark["grade"]}
    assert points == {f"test-{name.replace('.', '-')}": find_exercise(name).points for name in exercises(lab[0])}
    solutions = [cell for cell in source_version(lab[1]).cells if cell.metadata.get("nbgrader", {}).get("solution")]
    assert len(solutions) == sum("exercise" in tags_of(cell) for cell in lab[1].source.cells)


def test_hidden_tests_use_other_inputs(lab: tuple[str, Lab]) -> None:
    text = "\n".join(code(source_version(lab[1])))
    assert text.count("BEGIN HIDDEN TESTS") == len(exercises(lab[0])) and "seed=seed" in text
    assert "HIDDEN" not in "\n".join(code(released(lab[1])))


def test_a_course_folder_is_whole(tmp_path: Path) -> None:
    build_nbgrader(tmp_path / "course", {lab: MASTERS[lab] for lab in GRADED})
    assert "raise NotImplementedError" in (tmp_path / "course" / "nbgrader_config.py").read_text()
    assert {path.parent.name for path in (tmp_path / "course" / "source").rglob("*.ipynb")} == set(GRADED)


@pytest.fixture
def autograder(tmp_path: Path) -> Path:
    """Gradescope's folders, with the zip unpacked where it would be."""
    wheel = tmp_path / "kvedu-0-py3-none-any.whl"
    wheel.write_bytes(b"a stand-in")
    build_gradescope(tmp_path / "lab02.zip", "lab02", wheel)
    home = tmp_path / "autograder"
    with zipfile.ZipFile(tmp_path / "lab02.zip") as file:
        assert sorted(file.namelist()) == ["constraints.txt", wheel.name, "run_autograder", "setup.sh"]
        assert all(file.getinfo(name).external_attr >> 16 == 0o755 for name in ("run_autograder", "setup.sh"))
        file.extractall(home / "source")
    (home / "submission").mkdir()
    return home


def run_autograder(home: Path) -> dict:
    environment = os.environ | {"AUTOGRADER": str(home), "KVEDU_PYTHON": sys.executable}
    environment.pop("KVEDU_CACHE", None)
    done = subprocess.run(["sh", str(home / "source" / "run_autograder")], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((home / "results" / "results.json").read_text())


def test_the_autograder_writes_results(autograder: Path) -> None:
    right = "def bytes_per_token(c, b):\n    return 2 * c.L * c.K * c.D * b"
    (autograder / "submission" / "mine.ipynb").write_bytes(notebook(['"lab02.x"', right], "lab02"))
    results = run_autograder(autograder)
    assert results["score"] == 1 and results["tests"][0]["status"] == "passed"
    assert len(results["tests"]) == len(exercises("lab02"))


@pytest.mark.parametrize(("name", "data", "says"), [("notes.txt", b"", "No notebook was submitted"), ("a.ipynb", b"{", "is not a notebook")])
def test_a_bad_upload_gets_a_sentence(autograder: Path, name: str, data: bytes, says: str) -> None:
    (autograder / "submission" / name).write_bytes(data)
    results = run_autograder(autograder)
    assert results["score"] == 0 and says in results["output"]


@pytest.mark.parametrize("name", ["setup.sh", "run_autograder", "grade.sh"])
def test_the_shell_scripts_parse(name: str) -> None:
    assert subprocess.run(["sh", "-n", str(ROOT / "tools" / "instructor" / name)], check=False).returncode == 0
