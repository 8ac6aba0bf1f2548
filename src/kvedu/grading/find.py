"""From a name such as ``lab02.bytes_per_token`` to its grader, by the name of its module: the outer edge."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

import kvedu.grading
from kvedu.errors import KveduError
from kvedu.grading.exercise import Exercise


def labs() -> list[str]:
    """All labs that have graders, ``lab01`` first."""
    return sorted(x.name for x in iter_modules(kvedu.grading.__path__) if re.fullmatch(r"lab\d\d", x.name))


def exercises(lab: str) -> list[str]:
    """Full names of a lab's exercises, in the lab's order. Raises ``KveduError`` for a lab that is not there."""
    if lab not in labs():
        raise KveduError(f"there is no lab {lab!r}; the labs are {', '.join(labs())}")
    return [f"{lab}.{name}" for name in import_module(f"kvedu.grading.{lab}").EXERCISES]


def lab_title(lab: str) -> str:
    """A lab's title."""
    return str(import_module(f"kvedu.grading.{lab}").TITLE)


def find_exercise(name: str) -> Exercise:
    """The grader of a name. Raises ``KveduError`` with the names that there are."""
    lab, _, last = str(name).partition(".")
    if not re.fullmatch(r"lab\d\d\.[a-z0-9_]+", str(name)) or lab not in labs():
        raise KveduError(f"an exercise is named like 'lab02.bytes_per_token', not {name!r}; the labs are {', '.join(labs())}")
    if last.startswith("_") or find_spec(f"kvedu.grading.{lab}.{last}") is None:
        raise KveduError(f"{lab} has no exercise {last!r}; it has {', '.join(exercises(lab))}")
    return import_module(f"kvedu.grading.{lab}.{last}").EXERCISE
