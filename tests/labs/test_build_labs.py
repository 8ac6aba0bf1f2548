"""The labs' builder: what a learner gets, what the solution keeps, and what it refuses."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_labs  # noqa: E402
from labs_master import STUB, MasterError, read_master  # noqa: E402

HEAD = "# %% [markdown]\n# # Lab 7 · Small\n\n"
EXERCISE = """# %% tags=["exercise"]
def double(x):
    \"\"\"Twice x.\"\"\"
    ### BEGIN SOLUTION
    twice_as_much = x + x
    return twice_as_much
    ### END SOLUTION


"""
CHECK = """# %% tags=["check"]
assert double(3) == 6, f"double(3) is 6, not {double(3)}"
print("right", double)

"""


@pytest.fixture
def labs(tmp_path: Path):
    """A labs folder; call it with a master's text to get the master's path."""
    masters = tmp_path / "labs" / "masters"
    masters.mkdir(parents=True)
    (masters / "setup.py").write_text('print("ready")\n')

    def write(text: str, name: str = "07_small_lab.py") -> Path:
        (masters / name).write_text(text)
        return masters / name

    return write


def codes(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_the_stub_replaces_the_solution_at_its_indentation(labs) -> None:
    lab = read_master(labs(HEAD + EXERCISE + CHECK))
    assert lab.name == "07-small-lab"
    assert codes(lab.learner)[1] == f'def double(x):\n    """Twice x."""\n    {STUB}'
    assert codes(lab.solution)[1].endswith('Twice x."""\n    twice_as_much = x + x\n    return twice_as_much')


def test_the_setup_cell_comes_second_and_ids_pair_up(labs) -> None:
    text = HEAD + EXERCISE + CHECK + '# %% [markdown] tags=["solution"]\n# Because two is two.\n\n# %%\nlast = 1\n'
    lab = read_master(labs(text))
    assert [cell.cell_type for cell in lab.learner.cells] == ["markdown", "code", "code", "code", "code"]
    assert lab.learner.cells[1].source == 'print("ready")'
    learner, solution = ([cell.id for cell in notebook.cells] for notebook in (lab.learner, lab.solution))
    assert learner == ["lab07-00", "lab07-01", "lab07-02", "lab07-03", "lab07-05"]
    assert solution == ["lab07-00", "lab07-01", "lab07-02", "lab07-03", "lab07-04", "lab07-05"]


TASK = "# %% [markdown]\n# ## {}\n#\n# **Outcome:** all of it · **Difficulty:** ●○○ · **Time:** {} min\n#\n# Save 37.5 % where K = G and `K = 3`.\n\n"


def test_what_every_lab_says_is_said_by_the_builder(labs) -> None:
    text = HEAD + "# You will write it.\n#\n# **K** heads.\n\n" + TASK.format("Exercise 1 · A", 12) + EXERCISE + CHECK
    lab = read_master(labs(text.replace("# # Lab 7 · Small\n\n", "# # Lab 7 · Small\n#\n")))
    title, opening, house, letters = lab.learner.cells[0].source.split("\n\n")
    assert (title, opening, letters) == ("# Lab 7 · Small", "You will write it.", "**K** heads.")
    assert house.startswith("The exercises take about 10 minutes. A CPU is enough.\n") and "`kvedu.progress()`" in house
    solved = lab.solution.cells[0].source.split("\n\n")
    assert solved[0] == "# Solution of lab 7 · Small" and solved[2:] == [opening, house, letters]
    assert solved[1] == "This is the solved lab; the exercise is [Lab 7](../07-small-lab.ipynb)."


def test_challenges_and_kernels_are_counted_in(labs) -> None:
    text = HEAD + TASK.format("Exercise 1 · A", 20) + EXERCISE.replace("def double", "DEVICE = kernel_device()\ndef double") + CHECK
    text = text.replace("# # Lab 7 · Small\n\n", "# # Lab 7 · Small\n#\n# You will.\n\n")
    house = read_master(labs(text + TASK.format("Challenge · B (optional)", 10))).learner.cells[0].source.split("\n\n")[2]
    assert "about 20 minutes (30 with the challenge)" in house and "Triton's interpreter" in house


def test_spaces_that_must_not_break(labs) -> None:
    prose = read_master(labs(HEAD + TASK.format("Exercise 1 · A", 12) + EXERCISE + CHECK)).learner.cells[2].source
    assert "all of it\u00a0· **Difficulty:** ●○○\u00a0· **Time:** 12\u00a0min" in prose
    assert "Save 37.5\u00a0% where K\u00a0=\u00a0G and `K = 3`." in prose


def test_remarks_for_tools_are_cut_and_a_learners_cell_is_no_part_of_the_solution(labs) -> None:
    text = HEAD + '# %%\nimport os  # noqa: E402\nx = [\n]  # fmt: skip\n\n' + '# %% tags=["learner"]\nprint("your idea")\n'
    lab = read_master(labs(text))
    assert codes(lab.learner)[1:] == ["import os\nx = [\n]", 'print("your idea")']
    assert codes(lab.solution)[1:] == ["import os\nx = [\n]"]


def test_two_regions_in_a_cell(labs) -> None:
    two = EXERCISE.rstrip() + "\n\n\ndef treble(x):\n    ### BEGIN SOLUTION\n    return x + x + x\n    ### END SOLUTION\n\n\n"
    learner = codes(read_master(labs(HEAD + two + CHECK)).learner)[1]
    assert learner.count(STUB) == 2 and "x + x" not in learner


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        (EXERCISE + CHECK, "begins with '# Lab N"),
        (HEAD + EXERCISE, "without a cell tagged 'check'"),
        (HEAD + EXERCISE + EXERCISE + CHECK, "without a cell tagged 'check'"),
        (HEAD + EXERCISE.replace("    ### END SOLUTION\n", "") + CHECK, "without '### END SOLUTION'"),
        (HEAD + EXERCISE.replace("BEGIN", "END") + CHECK, "does not pair up"),
        (HEAD + EXERCISE.replace("### END SOLUTION", "### BEGIN SOLUTION") + CHECK, "does not pair up"),
        (HEAD + EXERCISE.replace("### END SOLUTION", "pass  ### END SOLUTION") + CHECK, "does not pair up"),
        (HEAD + EXERCISE.replace(' tags=["exercise"]', "") + CHECK, "the tag 'exercise'"),
        (HEAD + CHECK.replace("check", "exercise") + CHECK, "the tag 'exercise'"),
        (HEAD + "# %% [markdown]\n# ### BEGIN SOLUTION\n# text\n# ### END SOLUTION\n", "belong in code cells"),
        (HEAD + EXERCISE + CHECK + "# %%\ntwice_as_much = x + x\n", "gives away 'twice_as_much = x + x'"),
        (HEAD + EXERCISE + CHECK + "# %% [markdown]\n# Hint: return twice_as_much\n", "gives away"),
        (HEAD + EXERCISE + CHECK + "# %%\n# %pip install torch\n", "no magics"),
    ],
)
def test_a_bad_master_is_refused(labs, text: str, sign: str) -> None:
    with pytest.raises(MasterError, match="^07_small_lab.py") as refused:
        read_master(labs(text))
    assert sign in str(refused.value)


def test_a_bad_name_is_refused(labs) -> None:
    with pytest.raises(MasterError, match="NN_slug"):
        read_master(labs(HEAD, "7-small.py"))


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A labs folder with one lab built."""
    root = tmp_path_factory.mktemp("tree")
    (root / "labs" / "masters").mkdir(parents=True)
    (root / "labs" / "masters" / "setup.py").write_text('print("ready")\n')
    (root / "labs" / "masters" / "07_small_lab.py").write_text(HEAD + EXERCISE + CHECK.replace(", double)", ")"))
    build_labs.build_lab(root / "labs", read_master(root / "labs" / "masters" / "07_small_lab.py"))
    return root


def check(root: Path) -> str:
    """What ``--check`` says."""
    command = [sys.executable, str(ROOT / "tools" / "build_labs.py"), "--root", str(root), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if "are what their masters give" in done.stdout else 1), done
    return done.stdout + done.stderr


def test_a_build_runs_both_notebooks(built: Path) -> None:
    """C039: every code cell was run, and the cell that fails for the learner is the one with the tag."""
    learner = nbformat.read(built / "labs" / "07-small-lab.ipynb", as_version=4)
    solution = nbformat.read(built / "labs" / "solutions" / "07-small-lab.ipynb", as_version=4)
    nbformat.validate(learner), nbformat.validate(solution)
    assert learner.cells[3].outputs[0].ename == "NotImplementedError"
    assert learner.cells[3].metadata.tags == ["check", "raises-exception"]
    assert solution.cells[3].outputs[0].text == "right\n"
    assert solution.cells[3].metadata.tags == ["check"]
    assert learner.metadata.language_info == solution.metadata.language_info == {"name": "python"}
    for cell in [*learner.cells, *solution.cells]:
        assert cell.cell_type != "code" or cell.execution_count
        assert "execution" not in cell.metadata
    assert "1 labs are what their masters give" in check(built)


@pytest.mark.parametrize(
    ("which", "change", "sign"),
    [
        ("07-small-lab", lambda nb: nb.cells[0].update(source="# Lab 7 · Other"), "is not what its master gives"),
        ("solutions/07-small-lab", lambda nb: nb.cells[2].update(source="def double(x): ..."), "is not what its master gives"),
        ("07-small-lab", lambda nb: nb.cells[3].metadata.update(tags=["check"]), "has an error or the tag"),
        ("07-small-lab", lambda nb: nb.cells[3].update(outputs=[]), "has an error or the tag"),
        ("07-small-lab", lambda nb: nb.cells[2].update(execution_count=None), "was never run"),
        ("07-small-lab", lambda nb: nb.cells[3].outputs[0].update(evalue="twice_as_much = x + x"), "gives away"),
        ("solutions/07-small-lab", lambda nb: [cell.update(outputs=[]) for cell in nb.cells if "outputs" in cell], "no outputs"),
    ],
)
def test_check_sees_a_change(built: Path, which: str, change, sign: str) -> None:
    path = built / "labs" / f"{which}.ipynb"
    before = path.read_text("utf-8")
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)
    try:
        assert sign in check(built)
    finally:
        path.write_text(before, "utf-8")


def test_check_sees_a_notebook_without_a_master(built: Path) -> None:
    stranger = built / "labs" / "09-stranger.ipynb"
    stranger.write_text((built / "labs" / "07-small-lab.ipynb").read_text("utf-8"), "utf-8")
    try:
        assert "09-stranger.ipynb has no master" in check(built)
    finally:
        stranger.unlink()


def test_a_solution_that_fails_is_not_written(labs) -> None:
    path = labs(HEAD + EXERCISE.replace("x + x", "x + 1") + CHECK)
    with pytest.raises(MasterError, match="double\\(3\\) is 6, not 4"):
        build_labs.build_lab(path.parents[1], read_master(path))
    assert not list(path.parents[1].glob("*.ipynb"))


def test_a_check_that_passes_the_starter_is_refused(labs) -> None:
    path = labs(HEAD + EXERCISE + '# %% tags=["check"]\nprint("fine")\n')
    with pytest.raises(MasterError, match="passes an untouched starter"):
        build_labs.build_lab(path.parents[1], read_master(path))


@pytest.mark.parametrize("path", sorted((ROOT / "labs" / "masters").glob("*.py")), ids=lambda path: path.stem)
def test_no_line_of_code_is_cut_off_on_the_page(path: Path) -> None:
    """The column holds 100 characters."""
    wide = [line for line in path.read_text("utf-8").splitlines() if len(line) > 100]
    assert not wide, wide


def test_the_committed_labs_are_what_their_masters_give() -> None:
    assert "are what their masters give" in check(ROOT)


def test_no_machine_of_ours_is_named() -> None:
    for path in [*(ROOT / "labs").glob("*.ipynb"), *(ROOT / "labs" / "solutions").glob("*.ipynb")]:
        text = path.read_text("utf-8")
        assert str(ROOT) not in text and str(Path.home()) + "/" not in text and "/tmp/" not in text, path.name


@pytest.mark.parametrize("path", sorted((ROOT / "labs" / "solutions").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_committed_solution_is_compared_for_the_most_part(path: Path) -> None:
    """Every code cell was run, at most a fifth of them is not compared, and the file is small."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    assert sum("nbval-ignore-output" in cell.metadata.get("tags", []) for cell in cells) <= len(cells) / 5
    assert path.stat().st_size < 200_000
