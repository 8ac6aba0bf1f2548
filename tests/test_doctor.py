"""The doctor's page: complete where all is well, and complete where things are missing or broken."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from kvedu import doctor, fetch

LABELS = [label for label, _ in doctor.CHECKS]


def line(label):
    """What the page says beside a label."""
    return doctor._looked_up(dict(doctor.CHECKS)[label])


def run(*code, **env):
    command = [sys.executable, *(["-c", *code] if code else ["-m", "kvedu.doctor"])]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | env)


def test_the_command_prints_one_screen(tmp_path):
    done = run(KVEDU_CACHE=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [text[: len(label)] for text, label in zip(lines, LABELS)] == LABELS and len(lines) == len(LABELS) <= 24
    assert f"torch {torch.__version__}" in done.stdout and "python -m kvedu.fetch" in done.stdout
    assert "cannot tell" not in done.stdout


def test_nothing_that_is_missing_stops_the_page():
    """No torch, no GPU, no compiler, no model, a cache folder that cannot be: every line is still there."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(['torch', 'numpy', 'triton', 'gguf', 'tokenizers', 'safetensors'])\n"
        "from kvedu import doctor; print(doctor.report())"
    )
    done = run(code, PATH="", CXX="", KVEDU_CACHE="/dev/null/no", KVEDU_MODEL_FILE="/no/model")
    assert done.returncode == 0, done.stderr
    lines = dict(zip(LABELS, done.stdout.splitlines(), strict=True))
    assert "cannot tell: ModuleNotFoundError" in lines["device"]
    assert "none: torch.compile and the CPU kernels" in lines["C++ compiler"]
    assert "KVEDU_MODEL_FILE names /no/model, which is no file" in lines["model"]


def test_missing_packages_are_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda package: None if package in ("gguf", "jinja2") else "1.0")
    assert line("needed") == "torch 1.0, numpy 1.0, safetensors 1.0, tokenizers 1.0, gguf absent, jinja2 absent"
    assert line("to install") == "pip install gguf jinja2"
    monkeypatch.setattr(doctor, "version", lambda package: "1.0")
    assert line("to install") == "nothing is missing"


def test_versions_are_real():
    assert doctor.version("torch") == metadata_version("torch")
    assert doctor.version("no-such-package") is None


def metadata_version(package):
    from importlib.metadata import version

    return version(package)


def test_triton_absent(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert doctor.triton_state()[0] == "absent"


@pytest.mark.parametrize("gpu, interpret, prints, state", [
    (False, None, "kernel ran", "interpreted"), (True, None, "kernel ran", "compiled"),
    (True, "1", "kernel ran", "interpreted"), (False, None, "", "broken"), (True, None, "", "broken"),
])
def test_triton_by_running_a_kernel(monkeypatch, gpu, interpret, prints, state):
    """What is said follows from what ran, in the mode that was asked for."""
    def probe(command, *, env, **kwargs):
        assert (env.get("TRITON_INTERPRET") == "1") == (not gpu or interpret == "1")
        return SimpleNamespace(stdout=prints, stderr="Traceback\nRuntimeError: no ptxas")

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if interpret:
        monkeypatch.setenv("TRITON_INTERPRET", interpret)
    monkeypatch.setattr(doctor, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(doctor.subprocess, "run", probe)
    found, sentence = doctor.triton_state()
    assert found == state and (state != "broken" or "no ptxas" in sentence)


def test_triton_for_real():
    """What this very machine has: a small kernel ran, or there is no Triton to run one."""
    there = doctor.find_spec("triton") is not None
    assert doctor.triton_state()[0] in (("compiled", "interpreted") if there else ("absent",))


def test_a_compiler_is_found_by_cxx_or_by_name(tmp_path, monkeypatch):
    for name in ("mycc", "clang++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert doctor.compiler() == str(tmp_path / "clang++")
    monkeypatch.setenv("CXX", "mycc")
    assert doctor.compiler() == str(tmp_path / "mycc")


def test_model_cache_and_disk(tmp_path, monkeypatch):
    monkeypatch.delenv("KVEDU_MODEL_FILE", raising=False)
    monkeypatch.setenv("KVEDU_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "_installed_path", lambda: None)
    assert "not here yet; `python -m kvedu.fetch`" in line("model")
    with open(tmp_path / fetch.GGUF_NAME, "wb") as file:
        file.truncate(fetch.GGUF_BYTES)
    store = tmp_path / "store" / "abc-f1"
    store.mkdir(parents=True)
    (store / "weights.safetensors").write_bytes(bytes(2_000_000))
    assert line("model").endswith(f"{fetch.GGUF_NAME} (98 MB)")
    assert "1 fast form(s) of models, 2 MB" in line("cache")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=1e9))
    assert line("disk").startswith("1.0 GB free; fetching")
