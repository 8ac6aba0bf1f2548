"""`make gpu`, dry: the script is whole, its parts do not take each other down, and the model travels in two parts."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import gpu_check
import pytest
from gpu_check import Part, carry, gather, leave_parts, made_environment, main, model_file, pack, report, split, table, tree_bytes

from kvedu import fetch
from kvedu.book.provenance import current_commit


def test_a_dry_run_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine, a kernel test in the interpreter, a kernel bench, the engine, a lab: every part to its end; no answer of a lab is noted."""
    monkeypatch.setenv("KVEDU_PROGRESS", str(tmp_path / "kept" / "progress.json"))
    status = main(["--dry", "--out", str(tmp_path / "new" / "folder")])
    said = capsys.readouterr().out
    assert status == 0, said
    made = json.loads((tmp_path / "new" / "folder" / "gpu-dry.json").read_text())
    assert {"machine", "tests", "kernels", "engine"} <= {part["name"] for part in made["parts"]}
    assert made["gpu"]["copy_gb_per_s"] > 0 and all(part["status"] == "passed" for part in made["parts"])
    engine, tests, kernels = (next(part for part in made["parts"] if part["name"] == name) for name in ("engine", "tests", "kernels"))
    assert "passed" in tests["last"] and kernels["last"] == "every result agrees with its reference"
    assert engine["last"].startswith("tokens a second: engine ") and engine["last"] in said
    assert not (tmp_path / "kept").exists()


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


def test_the_sanitizer_is_small_comes_last_and_may_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It watches few tests over memory that PyTorch does not share out; too slow a one fails nothing, one that finds something does."""
    monkeypatch.setattr(gpu_check.shutil, "which", lambda name: str(tmp_path / "slow"))
    part = gpu_check.parts(False, "cuda")[-1]
    assert part.name == "sanitizer" and part.seconds > 60 and part.environment == {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    listed = subprocess.run([*part.command[3:], "--collect-only"], cwd=gpu_check.ROOT, capture_output=True, text=True)
    assert 0 < sum("::" in line for line in listed.stdout.splitlines()) < 5, listed.stdout
    for script, well in (("sleep 9", True), ("exit 1", False), ("exit 0", True)):
        (tmp_path / "slow").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "slow").chmod(0o755)
        part.run(1, {})
        assert part.well is well, part.status
    assert not Part("tests", [sys.executable, "-c", ""], 1).well, "others must have run"


def test_the_model_travels_in_parts(tmp_path: Path) -> None:
    """Part by part with a tree each, kept until all are there; joined they are the file."""
    sent, kept = tmp_path / "sent", tmp_path / "kept"
    sent.mkdir()
    assert model_file(sent, kept) is None
    first, second = split(sent, beside=8 * 2**20)
    assert max(first.stat().st_size, second.stat().st_size) < 52 * 2**20
    held = second.read_bytes()
    second.unlink()
    assert model_file(sent, kept) is None, "one of two is not all"
    first.unlink()
    second.write_bytes(held)
    whole = model_file(sent, kept)
    assert whole is not None and Path(whole).read_bytes() == Path(fetch.model_path()).read_bytes()


def test_trees_that_are_sent_are_small_and_whole(tmp_path: Path) -> None:
    """Two of less than 60 MiB, and the library, the benches, the tests and the labs are found in them."""
    trees = pack(tmp_path)
    assert len(trees) == 2 and all(tree_bytes(tree) < 60 * 2**20 and (tree / "carried" / "gguf").is_dir() for tree in trees)
    code = "import kvedu, sys; sys.path[:0] = ['tools', 'bench']; import gpu_check, bench_nano; print(kvedu.__file__); print([p.name for p in gpu_check.parts(False, 'cuda')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=trees[1], env=os.environ | {"PYTHONPATH": str(trees[1] / "src")}, capture_output=True, text=True
    )
    assert done.returncode == 0 and str(trees[1]) in done.stdout, done.stderr
    here = gpu_check.parts(False, "cuda")
    assert done.stdout.splitlines()[1] == str([part.name for part in here])
    assert {"machine", "tests splits", "kernels", "engine", "lab 18"} <= {re.sub(r" \d+/\d+$", "", part.name) for part in here}
    for word in [word for part in here for word in part.command[1:] if word.endswith(".py") and not Path(word).is_absolute()]:
        assert (trees[1] / word).exists(), word


def test_shards_are_the_whole_file() -> None:
    """Each test of a long file in one part of it, and in one only."""
    parts = [part for part in gpu_check.parts(False, "cuda") if "quantized_attention_triton" in part.name]
    assert len(parts) > 1 and [part.name.split()[-1] for part in parts] == [f"{i + 1}/{len(parts)}" for i in range(len(parts))]

    def collected(environment: dict[str, str]) -> list[str]:
        path = "tests/kernels/test_quantized_attention_triton.py"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", path]
        done = subprocess.run(command, cwd=gpu_check.ROOT, env=os.environ | environment, capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if "::" in line]

    shards = [collected(part.environment) for part in parts]
    assert sorted(name for shard in shards for name in shard) == sorted(collected({})) and min(map(len, shards)) > 5


def test_what_a_machine_may_lack_travels_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gguf, where it is not installed, with what transformers asks of its version; and the commit, which no .git tells there."""
    carry(tmp_path)
    monkeypatch.setattr(gpu_check, "find_spec", lambda name: None)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment = made_environment(tmp_path)
    code = "import gguf, importlib.metadata as m; from kvedu.book.provenance import current_commit; print(gguf.__file__, m.version('gguf'), current_commit())"
    environment["PYTHONPATH"] += os.pathsep + str(Path(gpu_check.ROOT) / "src")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path)
    where, version, commit = done.stdout.split()
    assert str(tmp_path) in where and version == importlib.metadata.version("gguf") and commit == current_commit(), done.stderr
    monkeypatch.setattr(gpu_check, "find_spec", lambda name: "there")
    assert "carried" not in made_environment(tmp_path)["PYTHONPATH"], "an installed one is not put behind"


def test_beside_a_checkout_each_part_is_small_enough(tmp_path: Path) -> None:
    """Its own files count as sent; old parts make room for new ones, and git sees none of it."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "large").write_bytes(bytes(20 * 2**20))
    subprocess.run(["git", "-C", str(tmp_path), "add", "large"], check=True)
    (tmp_path / "model.part-9-of-9").touch()
    parts = leave_parts(tmp_path)
    assert sorted(tmp_path.glob("model.part-*")) == sorted(parts) and len(parts) == 3
    assert all(20 * 2**20 + tree_bytes(tmp_path / "carried") + part.stat().st_size <= 60 * 2**20 for part in parts)
    ignored = (Path(gpu_check.ROOT) / ".gitignore").read_text().splitlines()
    assert {"/model.part-*", "/carried/"} <= set(ignored)


def test_rows_of_the_run_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those stored since it began, and no others."""
    rows, out = tmp_path / "bench" / "results", tmp_path / "out"
    rows.mkdir(parents=True)
    out.mkdir()
    monkeypatch.setattr(gpu_check, "ROOT", tmp_path)
    for name, age in (("old", 100), ("new", 0)):
        (rows / f"{name}.json").write_text("[]")
        os.utime(rows / f"{name}.json", (1e9 - age, 1e9 - age))
    gather(out, 1e9 - 1)
    gather(None, 0)
    gather(rows, 0)
    assert [row.name for row in out.iterdir()] == ["new.json"]


def test_a_lab_runs_where_it_is_told(tmp_path: Path) -> None:
    """Its own tensors and its model lie on the device; a grader's, the library's, and those with a place of their own do not."""
    lab, grader = tmp_path / "lab.py", tmp_path / "grading.py"
    grader.write_text("import torch\n\ndef check(f):\n    return f(torch.ones(2)).device\n")
    lab.write_text(
        "import torch, sys\nsys.path.append('.')\nfrom grading import check\n"
        "g = torch.Generator().manual_seed(0)\n"
        "print(torch.zeros(2).device, torch.randn(2, generator=g).device, torch.ones(1, device=\"cpu\").device, "
        "torch.ones(1, device='cpu').device, check(lambda x: x + torch.zeros(2)))\n"
    )
    done = subprocess.run([sys.executable, "-c", gpu_check.LAB, "lab.py", "meta"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["meta", "meta", "meta", "cpu", "cpu"], done.stderr


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main([]) == 1 and "make gpu-dry" in capsys.readouterr().err
