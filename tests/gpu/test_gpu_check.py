"""`make gpu`, dry: the script is whole, its parts do not take each other down, and the model travels in two parts."""

import json
import sys
from pathlib import Path

import gpu_check
import pytest
from gpu_check import Part, main, model_file, report, split, table

from kvedu import fetch


def test_a_dry_run_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Machine, a kernel test in the interpreter, a kernel bench, the engine, a lab: every part to its end."""
    status = main(["--dry", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert status == 0, said
    made = json.loads((tmp_path / "gpu-dry.json").read_text())
    assert {"machine", "tests", "kernels", "engine"} <= {part["name"] for part in made["parts"]}
    assert made["gpu"]["copy_gb_per_s"] > 0 and all(part["status"] == "passed" for part in made["parts"])
    assert "engine" in said.splitlines()[-3] or "engine" in said


def test_one_that_hangs_or_fails_does_not_take_the_others_with_it() -> None:
    parts = [
        Part("hangs", [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"], 2),
        Part("fails", [sys.executable, "-c", "import sys; sys.exit('no such kernel')"], 20),
        Part("passes", [sys.executable, "-c", "print('well')"], 20),
    ]
    for part in parts:
        part.run(100, {})
    assert [part.status for part in parts] == ["stopped after 2 s", "failed (1)", "passed"]
    assert [part.last for part in parts] == ["begun", "no such kernel", "well"]
    assert "no such kernel" in table(parts) and report(parts, True)["gpu"] == {}


def test_the_model_travels_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fits into a tree of 60 MiB; joined they are the file."""
    assert model_file(tmp_path) is None
    made = split(tmp_path)
    assert len(made) == 2 and all(path.stat().st_size < 55 * 2**20 for path in made)
    monkeypatch.setattr(gpu_check.tempfile, "gettempdir", lambda: str(tmp_path))
    whole = model_file(tmp_path)
    assert whole is not None and Path(whole).read_bytes() == Path(fetch.model_path()).read_bytes()


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main([]) == 1 and "make gpu-dry" in capsys.readouterr().err
