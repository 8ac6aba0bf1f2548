"""pyproject.toml, constraints.txt, environment.yml and the Makefile say the same; make's errors are sentences."""

import os
import re
import shutil
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PLATFORMS = [
    {
        "sys_platform": system,
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.9",
    }
    for system, machine in (("linux", "x86_64"), ("darwin", "arm64"))
    for python in ("3.11", "3.12", "3.13")
]


def constraints() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def asked_for() -> list[Requirement]:
    return [
        Requirement(text) for text in [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    ]


def pinned(environment: dict[str, str]) -> dict[str, Version]:
    rows = [row for row in constraints() if row.marker is None or row.marker.evaluate(environment)]
    return {canonicalize_name(row.name): Version(str(row.specifier).removeprefix("==")) for row in rows}


def test_pyproject_gives_ranges_and_all_extras() -> None:
    assert set(EXTRAS) == {"book", "labs", "test", "instructor", "serve", "bench"}
    for requirement in asked_for():
        assert requirement.specifier and not any(part.operator in ("==", "===") for part in requirement.specifier), (
            requirement
        )


def test_constraints_are_exact_and_sorted_once() -> None:
    rows = constraints()
    for row in rows:
        assert re.fullmatch(r"==[^,+*]+", str(row.specifier)), f"{row} is not one exact version without a local part"
    keys = [(canonicalize_name(row.name), str(row.marker)) for row in rows]
    assert len(keys) == len(set(keys))
    assert Version("2.13.0") == pinned(PLATFORMS[0])["torch"]


@pytest.mark.parametrize("environment", PLATFORMS, ids=lambda e: f"{e['sys_platform']}-{e['python_version']}")
def test_constraints_fit_pyproject_on_every_platform(environment: dict[str, str]) -> None:
    versions = pinned(environment)
    for requirement in asked_for():
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue  # asked for on other platforms only
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{name} is in pyproject.toml and not in constraints.txt"
        assert requirement.specifier.contains(versions[name], prereleases=True), (
            f"{name}=={versions[name]} is outside {requirement}"
        )


def test_constraints_hold_the_whole_closure() -> None:
    """Everything that the installed environment pulled in has its exact version in constraints.txt."""
    here = {
        canonicalize_name(row.name): str(row.specifier)
        for row in constraints()
        if row.marker is None or row.marker.evaluate()
    }
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in PROJECT["dependencies"]]
    waiting += [Requirement(text) for extra in ("book", "labs", "test") for text in EXTRAS[extra]]
    while waiting:
        requirement = waiting.pop()
        if requirement.marker is not None and "extra" not in str(requirement.marker) and not requirement.marker.evaluate():
            continue
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            waiting += list(requirements_of(name, extra))
            assert name in here, f"{name} is installed for the book and missing from constraints.txt"
            assert here[name] == f"=={Version(distribution(name).version).public}", (
                f"{name}: run `make` after a change of constraints.txt"
            )
    assert len(seen) > 100


def requirements_of(name: str, extra: str) -> Iterator[Requirement]:
    try:
        texts = distribution(name).requires or []
    except PackageNotFoundError:
        pytest.fail(f"{name} is asked for and not installed")
    for requirement in map(Requirement, texts):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            if extra == "" or re.search(r"\bextra\b", str(requirement.marker)):
                yield requirement


def test_conda_environment_is_the_same_one() -> None:
    makefile = (ROOT / "Makefile").read_text()
    extras = re.search(r"^EXTRAS := (\S+)$", makefile, re.MULTILINE)
    assert extras is not None and set(extras[1].split(",")) <= set(EXTRAS)
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, section = environment["dependencies"]
    assert pip == "pip" and section == {"pip": ["-c constraints.txt", f"-e .[{extras[1]}]"]}
    assert Requirement(python).specifier.contains("3.11.0") and PROJECT["requires-python"] == ">=3.11"
    assert not Requirement(python).specifier.contains("3.10.9")


def test_platform_markers_cover_the_platforms() -> None:
    for row in constraints():
        if row.marker is not None:
            answers = {
                Marker(str(row.marker)).evaluate(environment | {"python_full_version": full})
                for environment in PLATFORMS
                for full in ("3.11.2", "3.12.9")
            }
            assert answers == {True, False}, f"the marker of {row} never matters"


def test_licences() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text() and "CC-BY-4.0" in (ROOT / "LICENSE-text").read_text()
    assert PROJECT["license"] == "Apache-2.0"


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert "make test" in script.read_text() and script.stat().st_mode & stat.S_IXUSR


# What `make` says when something is missing: run the real script in a copy with the thing taken away.


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "make_venv.sh", tmp_path / "tools")
    return tmp_path


def make(folder: Path, **environment: str) -> str:
    """``make book`` in ``folder``; its last line, which must be one sentence of kvedu's."""
    done = subprocess.run(
        ["make", "book"],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert lines and lines[-1].startswith("kvedu: ") and lines[-1].endswith("."), done.stdout + done.stderr
    return lines[-1]


def fake(folder: Path, name: str, body: str) -> str:
    """A folder with one command in it, put before the rest of PATH."""
    place = folder / "fake"
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{body}\n")
    (place / name).chmod(0o755)
    return f"{place}:{os.environ['PATH']}"


def test_no_python(copy: Path) -> None:
    path = fake(copy, "old", "exit 1")
    assert "no Python 3.11 or newer was found" in make(copy, PATH=path, KVEDU_PYTHON="old absent-python")


def test_no_disk(copy: Path) -> None:
    path = fake(copy, "df", "echo Filesystem; echo disk 100 90 1024 99% /")
    assert "only 1 MiB of disk are free" in make(copy, PATH=path)


def test_no_network(copy: Path) -> None:
    words = make(
        copy,
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_CONFIG_FILE=os.devnull,
        PIP_EXTRA_INDEX_URL="",
        PIP_FIND_LINKS="",
        PIP_RETRIES="0",
        PIP_NO_CACHE_DIR="1",
        http_proxy="",
        https_proxy="",
        HTTP_PROXY="",
        HTTPS_PROXY="",
    )
    assert "the package index could not be reached" in words


def test_disk_full_while_installing(copy: Path) -> None:
    venv = copy / ".venv" / "bin"
    venv.mkdir(parents=True)
    log = 'for word; do [ "$last" = --log ] && echo \'OSError: [Errno 28] No space left on device\' >"$word"; last=$word; done'
    (venv / "python").write_text(f'#!/bin/sh\ncase "$*" in *install*) {log}; exit 1;; esac\nexit 0\n')
    (venv / "python").chmod(0o755)
    assert "the disk is full" in make(copy)
