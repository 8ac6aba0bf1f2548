"""The learner's notebooks where exercises are skipped: what fails says which code is wanted, and is not a name that is missing."""

import ast
from pathlib import Path

import nbformat
import pytest
from labs_master import read_master, tags_of

LABS = Path(__file__).resolve().parents[2] / "labs"
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


@pytest.mark.parametrize("path", sorted(LABS.glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_no_output_holds_a_name_error(path: Path) -> None:
    """With nothing solved, as they are built."""
    cells = nbformat.read(path, as_version=4).cells
    assert not [cell.id for cell in cells for output in cell.get("outputs", []) if "NameError" in str(output)]


@pytest.mark.parametrize("path", sorted((LABS / "masters").glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_any_one_exercise_can_be_skipped(path: Path) -> None:
    """Where a cell reads a name that is lost with some exercise, the same cell has come upon that exercise before."""
    assert not lost(read_master(path).learner.cells)


def lost(cells: list) -> list[str]:
    """Names that a cell reads though an exercise that it does not use itself may have kept them from being bound."""
    written = {name for cell in cells if "exercise" in tags_of(cell) for node in ast.parse(cell.source).body for name in stored(node)}
    bodies: dict[str, set[str]] = {}  # what a function of the lab reads
    needs: dict[str, set[str]] = {}  # the exercises without which a name is never bound
    found = []
    for cell in cells:
        if cell.cell_type != "code" or tags_of(cell) & {"exercise", "check"}:
            continue
        met: set[str] = set()  # the exercises that the cell has come upon so far
        for node in ast.parse(cell.source).body:
            if isinstance(node, DEFINITIONS):
                bodies[node.name] = loaded(node) - names_in(node, ast.Store)
            else:
                read = through(loaded(node), bodies)
                met |= read & written
                found += [f"{cell.id}: {name} needs {', '.join(needs[name] - met)}" for name in read & needs.keys() if needs[name] - met]
            for name in stored(node):
                needs[name] = needs.get(name, met) & met
    return found


def stored(node: ast.AST) -> set[str]:
    """Names that a statement binds where it stands."""
    if isinstance(node, DEFINITIONS):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names_in(node, ast.Store)


def names_in(node: ast.AST, use: type[ast.expr_context]) -> set[str]:
    """Names that are read, or bound, anywhere in a statement."""
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, use)}


def loaded(node: ast.AST) -> set[str]:
    """Names that a statement reads, less those of its own loops, comprehensions and parameters."""
    own = {x.arg for x in ast.walk(node) if isinstance(x, ast.arg)}
    for x in ast.walk(node):
        if isinstance(x, (ast.For, ast.While, ast.With, ast.If)):
            own |= stored(x)
        elif isinstance(x, ast.comprehension):
            own |= stored(x.target)
    return names_in(node, ast.Load) - own


def through(names: set[str], bodies: dict[str, set[str]]) -> set[str]:
    """These names, and what is read by the lab's own functions among them."""
    todo, all_names = list(names), set(names)
    while todo:
        new = bodies.get(todo.pop(), set()) - all_names
        all_names |= new
        todo += new
    return all_names
