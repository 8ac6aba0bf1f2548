"""Made-up submissions to a lab, good and bad, each with the score it must get: for tests and for measuring the grader."""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "laws"))

from lab_answers import Answer, answers, learner_name  # noqa: E402

from kvedu.grading.find import exercises  # noqa: E402

Cells = list[str]


@dataclass(frozen=True)
class Made:
    """A file, and what grading it must find: the status, and the exercises that pass."""

    kind: str
    data: bytes
    status: str
    passed: frozenset[str]


def solved(lab: str) -> Cells:
    """The code cells of a lab's solution notebook."""
    (path,) = (ROOT / "labs" / "solutions").glob(f"{lab[3:]}-*.ipynb")
    return _code(path)


def untouched(lab: str) -> Cells:
    """The code cells of a lab's learner's notebook."""
    (path,) = (ROOT / "labs").glob(f"{lab[3:]}-*.ipynb")
    return _code(path)


def _code(path: Path) -> Cells:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def notebook(cells: Cells, lab: str, padding: int = 0) -> bytes:
    """A notebook file; ``padding`` bytes of output are put into its last cell."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": "x" * padding}] if padding else []
    made = [{"cell_type": "markdown", "metadata": {}, "source": f"# Lab {int(lab[3:])} · Made up"}]
    made += [{"cell_type": "code", "metadata": {}, "source": cell, "outputs": [], "execution_count": None} for cell in cells]
    made[-1]["outputs"] = outputs
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()


def place_of(cells: Cells, name: str) -> int:
    """The cell that defines the answer to an exercise."""
    return next(i for i, cell in enumerate(cells) if re.search(rf"^(def|class) {learner_name(name)}\b", cell, re.MULTILINE))


def with_answer(cells: Cells, name: str, source: str) -> Cells:
    """The cells with another answer to one exercise, in a cell of its own; the solution's definition is taken out."""
    at = place_of(cells, name)
    lines = cells[at].splitlines()
    (node,) = [node for node in ast.parse(cells[at]).body if getattr(node, "name", "") == learner_name(name)]
    rest = "\n".join(lines[: node.lineno - 1] + lines[node.end_lineno :])
    return [*cells[:at], rest, source, *cells[at + 1 :]]


def before(cells: Cells, name: str, source: str) -> Cells:
    """The cells with one more before the exercise."""
    at = place_of(cells, name)
    return [*cells[:at], source, *cells[at:]]


class Maker:
    """Makes submissions to one lab, at random but the same for the same seed."""

    def __init__(self, lab: str, seed: int = 0) -> None:
        self.lab, self.names, self.random = lab, exercises(lab), random.Random(seed)
        self.all = frozenset(self.names)
        self.cells = solved(lab)
        self.good, self.bad = self.all_answers(True), self.all_answers(False)

    def all_answers(self, right: bool) -> list[tuple[str, Answer]]:
        """Exercise and answer, of all that are right, or all that are wrong."""
        return [(name, answer) for name in self.names for answer in answers(name) if (answer.says is None) == right]

    def made(self, kind: str, cells: Cells, passed: frozenset[str] | None = None, status: str = "graded", padding: int = 0) -> Made:
        """A notebook and what is expected of it."""
        return Made(kind, notebook(cells, self.lab, padding), status, self.all if passed is None else passed)

    def right(self) -> Made:
        """The solution, with another right answer to one exercise."""
        name, answer = self.random.choice(self.good)
        return self.made(f"right, {name}: {answer.title}", with_answer(self.cells, name, answer.source))

    def wrong(self) -> Made:
        """The solution with a wrong answer to one exercise."""
        name, answer = self.random.choice(self.bad)
        return self.made(f"wrong, {name}: {answer.title}", with_answer(self.cells, name, answer.source), self.all - {name})


def special(maker: Maker, other_lab: str) -> dict[str, Callable[[], Made]]:
    """Everything that goes wrong with submissions, by name."""
    names, cells, last = maker.names, maker.cells, maker.names[-1]
    first_done = frozenset(name for name in names if place_of(cells, name) < place_of(cells, last))

    def lie(source: str) -> Cells:
        return with_answer(cells, names[0], source.replace("ANSWER", learner_name(names[0])))

    rest = maker.all - {names[0]}
    return {
        "solution": lambda: maker.made("solution", cells),
        "starter": lambda: maker.made("starter", untouched(maker.lab), frozenset()),
        "no check cells": lambda: maker.made("no check cells", [cell for cell in cells if "kvedu.check(" not in cell]),
        "a busy cell": lambda: maker.made("a busy cell", before(cells, last, "while True:\n    pass")),
        "busy after a check": lambda: maker.made("busy after a check", [*cells, f"kvedu.check('{names[0]}', {learner_name(names[0])})\nwhile True:\n    pass"]),
        "a cell that never ends": lambda: maker.made(
            "a cell that never ends", before(cells, last, "import time\nwhile True:\n    try:\n        time.sleep(9)\n    except BaseException:\n        pass"),
            first_done, "cut off"),
        "an answer that never ends": lambda: maker.made("an answer that never ends", lie("def ANSWER(*args):\n    while True:\n        pass"), rest),
        "memory at once": lambda: maker.made("memory at once", before(cells, last, "eaten = bytearray(10**11)")),
        "memory bit by bit": lambda: maker.made(
            "memory bit by bit", before(cells, last, "eaten = []\ntry:\n    while True:\n        eaten.append(bytes(10**8))\nexcept MemoryError:\n    del eaten\n    raise")),
        "a syntax error": lambda: maker.made("a syntax error", lie("def ANSWER(:\n    return 1"), rest),
        "an empty file": lambda: Made("an empty file", b"", "unreadable", frozenset()),
        "an empty notebook": lambda: Made("an empty notebook", notebook([""], maker.lab), "unreadable", frozenset()),
        "half a file": lambda: Made("half a file", notebook(cells, maker.lab)[:-200], "unreadable", frozenset()),
        "another lab": lambda: Made("another lab", notebook(solved(other_lab), other_lab), "unreadable", frozenset()),
        "50 MB": lambda: maker.made("50 MB", cells, padding=50 * 1000**2),
        "ends itself": lambda: maker.made("ends itself", before(cells, last, "import os\nos._exit(0)"), first_done, "crashed"),
        "kills itself": lambda: maker.made("kills itself", before(cells, last, "import ctypes\nctypes.string_at(0)"), first_done, "crashed"),
        "leaves processes": lambda: maker.made(
            "leaves processes", [*cells, "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(1000)"]),
        "sys.exit": lambda: maker.made("sys.exit", before(cells, last, "import sys\nsys.exit(0)")),
        "rebinds later": lambda: maker.made(
            "rebinds later", [*cells, *(f"{learner_name(name)} = [1, 2]\nt = i = x = results = 7" for name in names)]),
        "patches the check": lambda: maker.made(
            "patches the check", lie("import kvedu.grading.judge\nkvedu.check = lambda *a, **k: print('passed')\nkvedu.grading.judge.judge = None\ndef ANSWER(*a):\n    return 0"), rest),
        "patches torch": lambda: maker.made(
            "patches torch", lie("import torch\ntorch.isclose = torch.allclose = lambda *a, **k: True\ndef ANSWER(*a):\n    return torch.zeros(1)"), rest),
        "a lying object": lambda: maker.made(
            "a lying object", lie("class Liar(int):\n    __eq__ = lambda *a: True\n    __hash__ = int.__hash__\ndef ANSWER(*a):\n    return Liar(3)"), rest),
        "prints without end": lambda: maker.made("prints without end", before(cells, last, "for _ in range(10**5):\n    print('x' * 1000)")),
        "writes to the pipe": lambda: maker.made("writes to the pipe", before(cells, last, "import os\nos.write(3, b'\\xff' * 64)"), first_done, "crashed"),
    }  # fmt: skip
