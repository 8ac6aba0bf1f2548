"""From a lab's master to its two notebooks, without running anything."""

import re
from dataclasses import dataclass
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = 'raise NotImplementedError("your code here")'
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SHORTEST_LEAK = 12
"""Shorter solution lines, such as `else:`, say nothing and may stand anywhere."""


class MasterError(Exception):
    """What is wrong with a master, in one sentence with its place."""


@dataclass(frozen=True)
class Lab:
    """A lab's two notebooks, not executed, and the lines that must not be in the learner's.

    ``source`` is the learner's notebook with the solutions between their markers, as nbgrader wants it.
    """

    name: str
    learner: NotebookNode
    solution: NotebookNode
    source: NotebookNode
    secrets: tuple[str, ...]


def read_master(path: Path) -> Lab:
    """Read ``labs/masters/NN_slug.py`` and take it apart; raises ``MasterError``."""
    if not re.fullmatch(r"\d\d_[a-z0-9_]+\.py", path.name):
        raise MasterError(f"{path.name}: a master is named NN_slug.py, as in 02_memory_math.py")
    cells = jupytext.reads(path.read_text("utf-8"), fmt="py:percent").cells
    _check_order(cells, path)
    setup = (path.parent / "setup.py").read_text("utf-8").rstrip()
    cells.insert(1, nbformat.v4.new_code_cell(setup, metadata={"tags": ["hide-input", "nbval-ignore-output", "setup"]}))

    learner, solution, source, secrets = [], [], [], []
    for number, cell in enumerate(cells):
        cell.id = f"lab{path.name[:2]}-{number:02d}"
        cell.metadata = NotebookNode({"tags": sorted(tags_of(cell))} if tags_of(cell) else {})
        where = f"{path.name}, cell {number} ({cell.source.strip().splitlines()[0] if cell.source.strip() else 'empty'})"
        if cell.cell_type != "code" and (BEGIN in cell.source or END in cell.source):
            raise MasterError(f"{where}: solution markers belong in code cells; tag prose for the solution alone 'solution'")
        kept, given, hidden = _cut(cell.source, where)
        if ("exercise" in tags_of(cell)) != bool(hidden):
            raise MasterError(f"{where}: cells with solution markers have the tag 'exercise', and no others have it")
        solution.append(_with_source(cell, kept))
        if "solution" in tags_of(cell):
            hidden = cell.source.splitlines()
        else:
            learner.append(_with_source(cell, given))
            source.append(_with_source(cell, cell.source))
        secrets += [line.strip() for line in hidden if len(line.strip()) >= SHORTEST_LEAK]
    notebooks = (_notebook(cells) for cells in (learner, solution, source))
    lab = Lab(path.stem.replace("_", "-"), *notebooks, tuple(dict.fromkeys(secrets)))
    if found := leaks(lab, lab.learner):
        raise MasterError(f"{path.name}: the learner's notebook gives away {found[0]!r}")
    return lab


def tags_of(cell: NotebookNode) -> set[str]:
    """A cell's tags."""
    return set(cell.metadata.get("tags", []))


def leaks(lab: Lab, notebook: NotebookNode) -> list[str]:
    """Solution lines that stand in a notebook, in a source or an output."""
    text = "\n".join([cell.source for cell in notebook.cells] + [_printed(cell) for cell in notebook.cells])
    return [line for line in lab.secrets if line in text]


def _check_order(cells: list[NotebookNode], path: Path) -> None:
    if not cells or cells[0].cell_type != "markdown" or not re.match(r"# Lab \d+ · \S", cells[0].source):
        raise MasterError(f"{path.name}: the first cell is Markdown and begins with '# Lab N · Title'")
    waiting = None
    for number, cell in enumerate(cells):
        if "exercise" in tags_of(cell):
            if waiting is not None:
                raise MasterError(f"{path.name}, cell {waiting}: an exercise without a cell tagged 'check' after it")
            waiting = number
        elif "check" in tags_of(cell):
            waiting = None
        if cell.cell_type == "code" and re.search(r"^\s*[%!]", cell.source, re.MULTILINE):
            raise MasterError(f"{path.name}, cell {number}: a master is a plain script; no magics, no '!'")
    if waiting is not None:
        raise MasterError(f"{path.name}, cell {waiting}: an exercise without a cell tagged 'check' after it")


def _cut(source: str, where: str) -> tuple[str, str, list[str]]:
    """A cell's source for the solution, for the learner, and the lines that only the first has."""
    kept, given, hidden = [], [], []
    inside = False
    for line in source.splitlines():
        word = line.strip()
        if word == (END if inside else BEGIN):
            inside = not inside
            if inside:
                given.append(line[: len(line) - len(line.lstrip())] + STUB)
        elif BEGIN in line or END in line:
            raise MasterError(f"{where}: {word!r} does not pair up; markers alternate, each alone on its line")
        else:
            kept.append(line)
            (hidden if inside else given).append(line)
    if inside:
        raise MasterError(f"{where}: {BEGIN!r} without {END!r}")
    return "\n".join(kept), "\n".join(given), hidden


def _with_source(cell: NotebookNode, source: str) -> NotebookNode:
    copy = nbformat.from_dict(dict(cell))
    copy.source = source
    return copy


def _notebook(cells: list[NotebookNode]) -> NotebookNode:
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}})
    notebook.nbformat_minor = 5
    return notebook


def _printed(cell: NotebookNode) -> str:
    texts = []
    for output in cell.get("outputs", []):
        texts += [output.get("text", ""), output.get("evalue", "")]
        texts += [value for value in output.get("data", {}).values() if isinstance(value, str)]
    return "\n".join(texts)
