"""A lab's nbgrader version: the learner's notebook with solutions and hidden tests between nbgrader's own markers."""

from __future__ import annotations

import re
import textwrap

from labs_master import STUB, Lab, tags_of
from nbformat import NotebookNode, from_dict

from kvedu.grading.find import find_exercise

CHECK = re.compile(r'^kvedu\.check\("(lab\d\d\.[a-z0-9_]+)", (\w+)\)$')
HIDDEN_SEEDS = (20_001, 20_002)
"""Inputs of the hidden tests, the same for a whole course; a teacher may change them in the source."""

CONFIG = f'''"""nbgrader's settings for this course. Run nbgrader in this folder."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "kvedu"
c.ClearSolutions.code_stub = {{"python": {STUB!r}}}
c.ExecutePreprocessor.timeout = 120
c.Execute.timeout = 120
'''


def source_version(lab: Lab) -> NotebookNode:
    """The notebook for ``source/labNN/``: exercise cells are solution cells, each check is a test cell of its own.

    Raises ``ValueError`` for a check cell that holds something else than checks.
    """
    cells: list[NotebookNode] = []
    for cell in lab.source.cells:
        if "check" in tags_of(cell):
            cells += [_test(cell, *_check(line)) for line in cell.source.splitlines() if line.strip()]
        elif "exercise" in tags_of(cell):
            cells.append(_marked(cell, cell.id, solution=True))
        else:
            cells.append(_marked(cell, cell.id, locked=cell.cell_type == "code"))
    notebook = from_dict(dict(lab.source))
    notebook.cells = cells
    return notebook


def _check(line: str) -> tuple[str, str]:
    found = CHECK.match(line)
    if not found:
        raise ValueError(f"a check cell holds lines such as kvedu.check(\"lab02.bytes_per_token\", bytes_per_token), not {line!r}")
    return found[1], found[2]


def _test(cell: NotebookNode, name: str, variable: str) -> NotebookNode:
    made = from_dict(dict(cell))
    made.source = textwrap.dedent(f"""\
        kvedu.check("{name}", {variable})
        ### BEGIN HIDDEN TESTS
        for seed in {HIDDEN_SEEDS}:
            kvedu.check("{name}", {variable}, seed=seed)
        ### END HIDDEN TESTS""")
    made.id = f"test-{name.replace('.', '-')}"
    return _marked(made, made.id, grade=True, locked=True, points=find_exercise(name).points)


def _marked(cell: NotebookNode, grade_id: str, *, solution: bool = False, grade: bool = False, locked: bool = False, points: float | None = None) -> NotebookNode:
    if not (solution or grade or locked):
        return cell
    marks = {"schema_version": 3, "grade_id": grade_id, "solution": solution, "grade": grade, "locked": locked, "task": False}
    made = from_dict(dict(cell))
    made.metadata = dict(made.metadata) | {"nbgrader": marks | ({} if points is None else {"points": points})}
    return from_dict(made)
