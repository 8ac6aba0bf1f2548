"""``kvedu.check`` and ``kvedu.progress``: what a learner sees, and what is kept."""

import subprocess
import sys
from pathlib import Path

import pytest
from lab_answers import MASTERS, master_of
from labs_master import read_master

import kvedu
from kvedu.errors import KveduError
from kvedu.grading.find import exercises, find_exercise, labs
from kvedu.grading.progress import progress_file
from kvedu.grading.verdict import NotYet, Verdict


def right(config, bytes_per_element):
    return 2 * config.L * config.K * config.D * bytes_per_element


def half(config, bytes_per_element):
    return config.L * config.K * config.D * bytes_per_element


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A progress file of this test's own."""
    monkeypatch.setenv("KVEDU_PROGRESS", str(tmp_path / "deep" / "progress.json"))
    return tmp_path / "deep" / "progress.json"


def test_a_pass_says_what_was_checked_and_no_more(capsys: pytest.CaptureFixture) -> None:
    kvedu.check("lab02.bytes_per_token", right)
    out = capsys.readouterr().out
    assert out.startswith("lab02.bytes_per_token: passed\n  Checked: equal to caches that exist")


def test_a_failure_says_what_came_what_was_wanted_and_which_mistake(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(AssertionError) as failed:
        kvedu.check("lab02.bytes_per_token", half)
    text = str(failed.value)
    lines = [line.split(":")[0].strip() for line in text.splitlines()]
    assert lines == ["lab02.bytes_per_token", "Where", "Came", "Wanted", "This looks like this mistake", "Hint", "Read"]
    assert "a key *and* a value" in text and "return" not in text
    assert capsys.readouterr().out == ""


def test_no_message_shows_a_solution() -> None:
    """Sentences and hints hold no line of the solved lab."""
    for lab in sorted({f"lab{path.name[:2]}" for path in MASTERS.glob("[0-9][0-9]_*.py")} & set(labs())):
        master = master_of(lab)
        secrets = [line for line in read_master(master).secrets if len(line) > 25]
        for name in exercises(lab):
            exercise = find_exercise(name)
            texts = [exercise.hint, exercise.checked, *(m.sentence + m.hint for m in exercise.mistakes)]
            assert not [line for line in secrets if any(line in text for text in texts)], name


@pytest.mark.parametrize("name", ["lab02", "lab02.nothing", "lab99.x", "lab02._slips", "lab02.bytes_per_token.x", "", "os.system"])
def test_a_wrong_name_is_answered_with_the_names_there_are(name: str) -> None:
    with pytest.raises(KveduError, match="lab02|bytes_per_token"):
        kvedu.check(name, right)


def test_progress_counts_checks_and_hints_and_knows_what_is_next(record: Path, tmp_path: Path) -> None:
    assert kvedu.progress().rows[0][2] == "next (to do)"
    for _ in range(2):
        with pytest.raises(NotYet):
            kvedu.check("lab02.bytes_per_token", half)
    kvedu.check("lab02.bytes_per_token", right)
    rows = {row[0]: row for row in kvedu.progress().rows}
    assert rows["lab02.bytes_per_token"][2:] == ("done", 3, 1)
    assert sum(row[2].startswith("next") for row in rows.values()) == 1
    assert "1 of" in str(kvedu.progress()) and "<table>" in kvedu.progress()._repr_html_()
    kvedu.progress(export=tmp_path / "mine.csv")
    assert "lab02.bytes_per_token,KV cache memory math: Bytes per token,done,3,1" in (tmp_path / "mine.csv").read_text()
    assert record.is_file() and list(record.parent.iterdir()) == [record]
    kvedu.progress(forget=True)
    assert not record.exists() and kvedu.progress().rows[0][2] == "next (to do)"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"lab02.bytes_per_token": 3}', '{"lab02.bytes_per_token": {"checks": "many"}}'])
def test_a_broken_record_stops_nobody(record: Path, text: str) -> None:
    record.parent.mkdir()
    record.write_text(text)
    kvedu.check("lab02.bytes_per_token", right)
    assert {row[0]: row[2] for row in kvedu.progress().rows}["lab02.bytes_per_token"] == "done"


def test_a_record_that_cannot_be_written_stops_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVEDU_PROGRESS", str(tmp_path / "file" / "progress.json"))
    kvedu.check("lab02.bytes_per_token", right)


def test_the_record_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVEDU_PROGRESS")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert progress_file() == Path("/data/kvedu/progress.json")


def test_the_box_escapes_what_came() -> None:
    box = Verdict("lab02.x", False, "no", came="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in box and "&lt;script&gt;" in box and "not yet" in box


def test_the_box_shows_code_where_the_sentence_has_backquotes() -> None:
    """No raw backquote, and what stands between two is escaped all the same."""
    box = Verdict("lab02.x", False, "put `a < b` in place of `raise NotImplementedError(...)`; a lone ` stays")._repr_html_()
    assert "<code>a &lt; b</code>" in box and "<code>raise NotImplementedError(...)</code>" in box and box.count("`") == 1


def test_a_notebook_shows_a_box_once_and_one_line_of_the_exception() -> None:
    """In a real kernel: the verdict as text and HTML, and a traceback of one line; nothing new in the namespace (C005)."""
    import nbformat
    from nbclient import NotebookClient

    cells = [
        "import kvedu\ndef bytes_per_token(c, b): return c.L * c.K * c.D * b\nbefore = set(globals())",
        'kvedu.check("lab02.bytes_per_token", bytes_per_token)',
        "print(sorted(x for x in set(globals()) - before if not x.startswith('_') and x != 'before'))",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, allow_errors=True, kernel_name="python3").execute()
    shown, error = notebook.cells[1].outputs
    assert "Came: " in shown.data["text/plain"] and "a key <em>and</em> a value" in shown.data["text/html"]
    assert error.ename == "NotYet" and error.traceback == ["lab02.bytes_per_token: not yet"]
    assert notebook.cells[2].outputs[0].text == "[]\n"


def test_plain_python_shows_the_whole_verdict() -> None:
    code = "import kvedu; kvedu.check('lab02.bytes_per_token', lambda c, b: 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Came: 0" in done.stderr and "Hint: " in done.stderr
