"""An exercise as data: fresh inputs, a right answer, and the wrong ones that people give, each with its sentence.

A grader is a module ``kvedu/grading/labNN/NAME.py`` that holds one ``EXERCISE``. Grading asks one
question: *which of these answers does the learner's look like?* The learner's answer and the known
ones are put to work by the same ``observe`` on the same inputs, and what is seen is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvedu.grading.fresh import Fresh


class Unfit(Exception):
    """What an ``observe`` raises where an answer cannot be used; the text is a sentence for the learner."""


@dataclass(frozen=True)
class Case:
    """One input. ``name`` is how a sentence calls it: ``"H=9, K=3"``."""

    name: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people give, as running code, and what to say to it.

    ``answer`` is of the kind that the learner writes (a function, a class). ``sentence`` goes on after
    "This looks like this mistake:"; ``hint`` stands in for the exercise's own.
    """

    answer: Any
    sentence: str
    hint: str = ""


Rule = Callable[[Case, Any], "str | None"]
"""What must hold of what was seen, however it was made: a sentence where it is broken, else None."""


def call(answer: Any, *args: Any) -> Any:
    """The plainest ``observe``: call the answer with the case's arguments."""
    return answer(*args)


def whole(seen: Any) -> Any:
    """The plainest ``compared``: all that was seen must equal."""
    return seen


@dataclass(frozen=True)
class Exercise:
    """All that is known about one exercise.

    ``cases(fresh)`` makes the inputs, others for every seed. ``observe(answer, *args)`` puts an answer to
    work and returns plain data: numbers, text, tensors, and tuples, lists, dicts of them. It runs beside
    the learner's code; everything else runs on the grader's side. ``compared(seen)`` is the part that
    must equal what ``right`` gives. Where many answers are right, ``right`` is None and ``rules`` decide.
    """

    title: str
    read: str
    """The page to read: ``book/02-memory-math``."""
    hint: str
    checked: str
    """What a pass may claim, and no more."""
    cases: Callable[[Fresh], Sequence[Case]]
    right: Any = None
    mistakes: tuple[Mistake, ...] = ()
    rules: tuple[Rule, ...] = ()
    observe: Callable[..., Any] = call
    compared: Callable[[Any], Any] = whole
    parts: tuple[str, ...] = ()
    """Names for the parts of a tuple that is compared."""
    tolerance: float = 1e-4
    """Largest absolute gap of floating-point values; whole numbers and text are exact."""
    defines: str = ""
    """The learner's name for it, where it is not the exercise's: ``MendedCache`` for ``lab01.mended_cache``."""
    may_change_inputs: bool = False
    seconds: float = 10.0
    """CPU seconds that all cases together may take."""
    points: float = 1.0
    optional: bool = False
    """A challenge: its points come on top."""
