"""The sets of right and wrong answers to the labs' exercises, and the namespace of a lab that they run in."""

import contextlib
import io
import itertools
import linecache
import re
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jupytext
from labs_master import read_master, tags_of

from kvedu.grading.find import find_exercise

ROOT = Path(__file__).resolve().parents[2]
MASTERS = ROOT / "labs" / "masters"
ANSWERS = ROOT / "tests" / "labs" / "answers"


@dataclass(frozen=True)
class Answer:
    """One answer as a learner would write it; ``says`` is part of the sentence that a wrong one gets."""

    title: str
    source: str
    says: str | None


def answers(name: str) -> list[Answer]:
    """The answers in ``tests/labs/answers/labNN/NAME.py``, in order."""
    path = ANSWERS / f"{name.replace('.', '/')}.py"
    if not path.is_file():
        return []
    found = []
    for part in re.split(r"^# %% ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        head, _, source = part.partition("\n")
        kind, _, title = head.partition(": ")
        says = re.match(r"# says: (.+)\n", source)
        assert kind in ("right", "wrong") and title, f"{path}: {head!r} is not 'right: …' or 'wrong: …'"
        assert (kind == "wrong") == bool(says), f"{path}: a wrong answer, and no other, says its sentence: {head!r}"
        found.append(Answer(title, source, says[1].strip() if says else None))
    return found


def master_of(lab: str) -> Path:
    """The master of ``lab01``."""
    (path,) = MASTERS.glob(f"{lab[3:]}_*.py")
    return path


_count = itertools.count()


def define(source: str, title: str, names: dict) -> None:
    """Run source in a namespace, kept so that ``inspect`` finds it: Triton reads the source of a kernel, as a notebook's cells have it."""
    file = f"<{title} {next(_count)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)


@cache
def lab_names(lab: str) -> dict:
    """The names of the solved lab: all its cells that are neither checks nor measurements nor prose, run once."""
    names: dict = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in jupytext.reads(master_of(lab).read_text("utf-8"), fmt="py:percent").cells:
            if cell.cell_type == "code" and not tags_of(cell) & {"check", "measure", "solution"}:
                define(cell.source, f"{lab} master", names)
    return names


def learner_name(name: str) -> str:
    """What the learner calls the answer to an exercise."""
    return find_exercise(name).defines or name.split(".")[1]


def made(name: str, source: str) -> object:
    """The object that an answer's source defines, in a copy of the lab's names."""
    names = copy(lab_names(name.split(".")[0]))
    define(source, f"answer to {name}", names)
    return names[learner_name(name)]


def starter(name: str) -> object:
    """What the learner's notebook starts with."""
    lab, last = name.split(".")[0], learner_name(name)
    for cell in read_master(master_of(lab)).learner.cells:
        if "exercise" in tags_of(cell) and re.search(rf"^(def|class) {last}\b", cell.source, re.MULTILINE):
            return made(name, cell.source)
    raise AssertionError(f"no exercise cell of {lab} defines {last}")
