"""Stored rows say where they were measured, or are refused; every row in the repository does."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from kvedu.book import provenance, rows
from kvedu.book.provenance import common_parts, current_commit, describe, machine_info, other_parts
from kvedu.errors import KveduError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVEDU_ROWS", str(tmp_path))
    return tmp_path


def test_saved_rows_come_back(folder: Path) -> None:
    rows.save_row("decode", {"tok_per_s": 40.5}, command="python bench/b.py")
    row = rows.load_row("decode")
    assert row["tok_per_s"] == 40.5 and row.command == "python bench/b.py" and row.machine == machine_info()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.date) and "python" in row.versions
    assert row.cite().endswith(", by python bench/b.py") and row.commit in row.cite()
    with pytest.raises(KveduError, match="it has tok_per_s"):
        row["toks"]


def test_a_new_row_replaces_only_its_own_machine_s(folder: Path) -> None:
    rows.save_row("decode", {"x": 1}, command="c")
    path = folder / "decode.json"
    other = json.loads(path.read_text())[0] | {"machine": {"cpu": "other", "cores": 1}, "date": "2020-01-01"}
    path.write_text(json.dumps([other, *json.loads(path.read_text())]))
    rows.save_row("decode", {"x": 2}, command="c")
    assert [row["x"] for row in rows.load_rows("decode")] == [1, 2]
    assert rows.load_row("decode")["x"] == 2


@pytest.mark.parametrize("field", rows.FIELDS)
@pytest.mark.parametrize("empty", [True, False])
def test_a_row_without_its_origin_is_refused(folder: Path, field: str, empty: bool) -> None:
    rows.save_row("decode", {"x": 1}, command="c")
    path = folder / "decode.json"
    row = json.loads(path.read_text())[0]
    if empty:
        row[field] = type(row[field])()
    else:
        del row[field]
    path.write_text(json.dumps([row]))
    with pytest.raises(KveduError, match=f"lacks {field}"):
        rows.load_row("decode")


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[3]"])
def test_a_file_that_is_no_list_of_rows_is_refused(folder: Path, text: str) -> None:
    (folder / "decode.json").write_text(text)
    with pytest.raises(KveduError):
        rows.load_row("decode")


def test_where_rows_lie(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KveduError, match="stored: none"):
        rows.load_row("decode")
    monkeypatch.setenv("KVEDU_ROWS", str(folder / "gone"))
    with pytest.raises(KveduError, match="not a folder"):
        rows.rows_folder()
    monkeypatch.delenv("KVEDU_ROWS")
    deep = folder / "labs" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    with pytest.raises(KveduError, match="no bench/results"):
        rows.rows_folder()
    (folder / "bench" / "results").mkdir(parents=True)
    assert rows.rows_folder() == folder / "bench" / "results"


def test_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVEDU_COMMIT", "abc")
    assert current_commit() == "abc"
    monkeypatch.delenv("KVEDU_COMMIT")
    assert re.fullmatch(r"[0-9a-f]{12}\+?|unknown", current_commit())


def test_a_stored_measurement_is_no_change_and_any_other_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All figures of one `make traces` but the first had come from "uncommitted changes", and all rows of one `make bench`."""
    monkeypatch.delenv("KVEDU_COMMIT", raising=False)
    names = ["src/a.py", "bench/results/a.json", "book/figures/a.json", "book/figures/a.py", "bench/a.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "1"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "src" / "a.py"))
    for name in names:
        (tmp_path / name).write_text("2")
        assert current_commit().endswith("+") == (not name.endswith(".json")), name
        (tmp_path / name).write_text("1")
    assert re.fullmatch("[0-9a-f]{12}", current_commit())


def test_gpu_is_named_before_the_cpu() -> None:
    source = {"machine": {"cpu": "c", "cores": 2, "gpu": "a GPU"}, "date": "2026-01-01", "commit": "abc"}
    assert describe(source) == "a GPU, 2026-01-01, commit abc"


def test_what_is_common_is_said_once() -> None:
    here = {"machine": {"cpu": "c", "cores": 2}, "date": "2026-01-01", "commit": "abc", "versions": {"torch": "2"}}
    alone, later = here | {"machine": {"cpu": "c", "cores": 1}}, here | {"commit": "def+", "date": "2026-01-02"}
    common = common_parts([here, here, alone, later], "place", "date", "commit")
    assert common == {"place": "c (2 cores)", "date": "2026-01-01", "commit": "commit abc"}
    assert [other_parts(source, common) for source in (here, alone, later)] == ["", "c (1 core)", "2026-01-02, commit def+"]


@pytest.mark.parametrize("path", sorted((ROOT / "bench" / "results").glob("*.json")), ids=lambda path: path.stem)
def test_every_stored_row_is_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVEDU_ROWS", str(path.parent))
    assert rows.load_rows(path.stem)
