"""The check in a notebook: ``kvedu.check("lab02.bytes_per_token", bytes_per_token)``."""

from __future__ import annotations

import secrets
import sys
from typing import Any

from kvedu.grading import progress
from kvedu.grading.find import find_exercise
from kvedu.grading.judge import Known, judge
from kvedu.grading.observe import outcomes
from kvedu.grading.verdict import NotYet, Verdict


def check(name: str, answer: Any, *, seed: int | None = None) -> None:
    """Check an answer on fresh random inputs, show the verdict, and note it in the progress file.

    ``name`` is the exercise's, ``answer`` the learner's function, class or value. Raises ``NotYet`` (an
    ``AssertionError``) where the answer does not pass, and ``KveduError`` for a name that there is not.
    """
    verdict = verdict_on(name, answer, secrets.randbits(31) if seed is None else seed)
    progress.note(verdict)
    shown = show(verdict)
    if not verdict.passed:
        raise NotYet(verdict, shown=shown)


def verdict_on(name: str, answer: Any, seed: int) -> Verdict:
    """The verdict on an answer for the inputs of one seed; nothing is shown or noted."""
    exercise = find_exercise(name)
    return judge(name, exercise, outcomes(exercise, answer, seed), Known(seed))


def show(verdict: Verdict) -> bool:
    """Show a verdict as a box in a notebook, else print a pass; whether it has been shown."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and hasattr(shell, "kernel"):
        from IPython.display import display

        display({"text/plain": str(verdict), "text/html": verdict._repr_html_()}, raw=True)
        return True
    if verdict.passed:
        print(verdict)
    return False
