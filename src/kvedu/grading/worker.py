"""Run a submission's cells from top to bottom and report what its answers do: this process trusts nobody and is trusted by nobody.

An answer is put to work at two moments: when a cell has given its name a new value, and when a cell
calls ``kvedu.check`` on it. So a later rebinding changes nothing, and a check cell that was deleted is
not missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import kvedu.grading.check
from kvedu.grading.find import exercises, find_exercise
from kvedu.grading.observe import Stopped, outcomes
from kvedu.grading.time_limit import TimeUp, time_limit

MOST_REPORTS = 12
"""Times that an exercise is looked at."""

Send = Callable[[dict[str, Any]], None]


class Watch:
    """Looks at the answers of a lab in a namespace, and sends what it sees."""

    def __init__(self, lab: str, seeds: list[int], send: Send) -> None:
        self.names = {name: find_exercise(name).defines or name.split(".")[1] for name in exercises(lab)}
        self.seeds, self.send = seeds, send
        self.bound: dict[str, Any] = dict.fromkeys(self.names)
        self.reports = dict.fromkeys(self.names, 0)
        self.hung: list[Any] = []

    def report(self, name: str, answer: Any) -> None:
        """Put an answer to work on every seed and send what is seen."""
        if name not in self.names or self.reports[name] >= MOST_REPORTS or any(answer is x for x in self.hung):
            return
        self.reports[name] += 1
        seen = []
        for seed in self.seeds:
            seen.append(outcomes(find_exercise(name), answer, seed))
            if seen[-1] and isinstance(seen[-1][-1], Stopped):
                self.hung.append(answer)
                break
        self.send({"event": "seen", "name": name, "seen": seen})

    def after_cell(self, namespace: dict[str, Any]) -> None:
        """Report each answer that has a new value."""
        for name, variable in self.names.items():
            value = namespace.get(variable)
            if value is not None and value is not self.bound[name]:
                self.bound[name] = value
                self.report(name, value)


def run(cells: list[list[Any]], lab: str, seeds: list[int], cell_seconds: float, send: Send) -> None:
    """Run the cells (number and source each), sending events: ``seen``, ``error`` and, at last, ``end``."""
    watch = Watch(lab, seeds, send)

    def check(name: str, answer: Any, *, seed: int | None = None) -> None:
        watch.report(str(name), answer)

    kvedu.grading.check.check = kvedu.check = check
    shell = _shell()
    for number, source in cells:
        send({"event": "cell", "number": number})
        try:
            with time_limit(cell_seconds):
                error = shell.run_cell(source, store_history=False)
            problem = error.error_before_exec or error.error_in_exec
        except TimeUp as up:
            problem = up
        if problem is not None:
            text = f"did not end within {cell_seconds:g} seconds" if isinstance(problem, TimeUp) else _text(problem)
            send({"event": "error", "number": number, "text": text})
        watch.after_cell(shell.user_ns)
    send({"event": "end"})


class _Shell(InteractiveShell):
    """A shell that draws nowhere."""

    def enable_gui(self, gui: str | None = None) -> None:
        """There is no window to open."""


def _shell() -> InteractiveShell:
    """An IPython shell without a terminal, a history or a profile; its namespace is ``__main__``."""
    config = Config()
    config.HistoryManager.enabled = False
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    return _Shell.instance(config=config, user_module=module, user_ns=module.__dict__)


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except Exception:
        return type(error).__name__
