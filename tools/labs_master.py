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
TOOL_REMARK = re.compile(r"  # (?:fmt: skip|noqa(?:: \w+)?)$", re.MULTILINE)
"""What a master tells a formatter or a linter; no reader wants it."""
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
    cells[0].source = _with_house_text(cells)
    for cell in cells:
        cell.source = _typeset(cell.source) if cell.cell_type == "markdown" else TOOL_REMARK.sub("", cell.source)
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
        if "learner" not in tags_of(cell):
            solution.append(_with_source(cell, kept))
        if "solution" in tags_of(cell):
            hidden = cell.source.splitlines()
        else:
            learner.append(_with_source(cell, given))
            source.append(_with_source(cell, cell.source))
        secrets += [line.strip() for line in hidden if len(line.strip()) >= SHORTEST_LEAK]
    solution[0].source = _solved(solution[0].source, path.stem.replace("_", "-"))
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


def _with_house_text(cells: list[NotebookNode]) -> str:
    """The first cell with the paragraph that every lab has: how long it takes, what it needs, what a check does."""
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    times = re.findall(r"^## (.+)\n(?:(?!## ).*\n)*?.*\*\*Time:\*\* (\d+) min", text, re.MULTILINE)
    if not times:
        return cells[0].source
    challenges = sum(title.startswith("Challenge") for title, _ in times)
    must, most = (
        5 * round(sum(int(minutes) for title, minutes in times if all_of_it or not title.startswith("Challenge")) / 5)
        for all_of_it in (False, True)
    )
    more = f" ({most} with the challenge{'s' * (challenges > 1)})" if challenges else ""
    lines = [f"The exercises take about {must} minutes{more}. A CPU is enough."]
    if any(cell.cell_type == "code" and "kernel_device()" in cell.source for cell in cells):
        lines[0] = lines[0].replace("enough.", "enough: without a GPU the kernels run in Triton's interpreter,")
        lines.append("in seconds; with one the same code is compiled for it.")
    lines.append("Under each exercise stands a check; it says what is wrong, not only that something is.")
    lines.append("`kvedu.progress()` shows what you have done.")
    title, *rest = cells[0].source.split("\n\n")
    return "\n\n".join([title, *rest[:1], "\n".join(lines), *rest[1:]])


def _solved(opening: str, name: str) -> str:
    """The first cell of a solution: a title of its own, and the way to the exercise."""
    lab = re.match(r"# Lab (\d+)", opening)[1]
    title, *rest = opening.replace("# Lab", "# Solution of lab", 1).split("\n\n")
    return "\n\n".join([title, f"This is the solved lab; the exercise is [Lab {lab}](../{name}.ipynb).", *rest])


def _typeset(text: str) -> str:
    """No-break spaces in prose: in `37.5 %`, `15 min` and `K = G`, and before the dot in a line of outcome, difficulty and time."""
    parts = re.split(r"(```.*?```|`[^`]*`|\$[^$]*\$|<[^>]*>)", text, flags=re.DOTALL)
    for i in range(0, len(parts), 2):  # every other one is code, a formula or a tag
        parts[i] = re.sub(r"(?<=\d)\s(?=(?:%|min\b))", "\u00a0", parts[i])
        parts[i] = re.sub(r"\b([A-Za-z])\s([=≠<>≤≥])\s(\w)", "\\1\u00a0\\2\u00a0\\3", parts[i])
        parts[i] = re.sub(r"\s·\s(?=\*\*(?:Difficulty|Time):)", "\u00a0· ", parts[i])
    return "".join(parts)


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
