"""Build what a teacher needs to run a course: ``python tools/build_instructor.py [--out FOLDER]``.

``nbgrader/`` is a course folder with the source of each assignment, ``gradescope/labNN.zip`` an autograder
to upload, ``container/`` a recipe that grades a folder of submissions without a network, ``exam/`` a mixed exam with
answers and flashcards for Anki (``python tools/exam.py --seed 2`` draws another).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import exam
import nbformat
from labs_master import read_master
from nbgrader_course import CONFIG, source_version

from kvedu.grading.find import labs

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = Path(__file__).resolve().parent / "instructor"
EXECUTABLE = 0o755


def main() -> int:
    """Build all of it."""
    parser = argparse.ArgumentParser(description="Build the files for a course.")
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / "instructor")
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    wheel = build_wheel(out / "wheel")
    masters = {lab: next((ROOT / "labs" / "masters").glob(f"{lab[3:]}_*.py")) for lab in labs()}
    build_nbgrader(out / "nbgrader", masters)
    for lab in masters:
        build_gradescope(out / "gradescope" / f"{lab}.zip", lab, wheel)
    build_container(out / "container", wheel)
    exam.write(out / "exam", seed=1)
    for path in sorted(out.rglob("*")):
        if path.is_file():
            print(path.relative_to(out))
    print(f"in {out}; the instructor guide in the book says what to do with each.")
    return 0


def build_wheel(folder: Path) -> Path:
    """The library's wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "build.cfg"
    settings.write_text(f"[build]\nbuild_base = {folder / 'build'}\n")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], env=os.environ | {"DIST_EXTRA_CONFIG": str(settings)}, check=True)
    settings.unlink()
    shutil.rmtree(folder / "build", ignore_errors=True)
    return next(folder.glob("kvedu-*.whl"))


def build_nbgrader(folder: Path, masters: dict[str, Path]) -> None:
    """A course folder: settings and one source notebook for each lab."""
    folder.mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text(CONFIG)
    for lab, path in masters.items():
        master = read_master(path)
        (folder / "source" / lab).mkdir(parents=True)
        nbformat.write(source_version(master), folder / "source" / lab / f"{master.name}.ipynb")


def build_gradescope(target: Path, lab: str, wheel: Path) -> None:
    """An autograder to upload: set-up, run, the wheel and the exact versions."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("setup.sh", "run_autograder"):
            text = (TEMPLATES / name).read_text().replace("@LAB@", lab)
            info = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
            info.external_attr = EXECUTABLE << 16
            file.writestr(info, text)
        file.write(wheel, wheel.name)
        file.write(ROOT / "constraints.txt", "constraints.txt")


def build_container(folder: Path, wheel: Path) -> None:
    """A recipe for podman or docker, and the command that runs it."""
    folder.mkdir(parents=True)
    for name in ("Containerfile", "grade.sh"):
        shutil.copy(TEMPLATES / name, folder / name)
    (folder / "grade.sh").chmod(EXECUTABLE)
    shutil.copy(wheel, folder)
    shutil.copy(ROOT / "constraints.txt", folder)


if __name__ == "__main__":
    sys.exit(main())
