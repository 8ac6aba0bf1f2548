"""C039: a chapter's assertions are real: each stands where it runs, and one that is broken stops the build."""

import ast
import re
from pathlib import Path

import pytest
from book_execute import execute_pages
from myst_nb.core.read import read_myst_markdown_notebook
from small_book import HEADER, ROOT

CHAPTERS = sorted((ROOT / "book").glob("[0-9][0-9]-*.md"))
FORBIDDEN = ("raises-exception", "skip-execution")


def cells(text: str) -> list[tuple[list[str], str]]:
    """Tags and source of every code cell."""
    notebook = read_myst_markdown_notebook(text, add_source_map=True)
    return [(cell.metadata.get("tags", []), cell.source) for cell in notebook.cells if cell.cell_type == "code"]


def faults(text: str) -> list[str]:
    """Why a broken assertion of this chapter could go unseen."""
    found, asserts = [], 0
    for number, (tags, source) in enumerate(cells(text), 1):
        found += [f"cell {number} has the tag {tag}" for tag in FORBIDDEN if tag in tags]
        tree = ast.parse(re.sub(r"^\s*[%!].*$", "", source, flags=re.MULTILINE))
        asserts += sum(isinstance(node, ast.Assert) for statement in tree.body for node in _run_here(statement))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant | ast.Tuple):
                found.append(f"cell {number} asserts a constant")
            if isinstance(node, ast.Try) and any(isinstance(x, ast.Assert) for part in node.body for x in ast.walk(part)):
                found += [f"cell {number} catches its own assertion" for handler in node.handlers if _catches(handler)]
    return found if asserts else [*found, "no assertion runs"]


def _run_here(statement: ast.stmt) -> list[ast.AST]:
    """The nodes of a statement that run when the cell does: not the bodies of functions and classes."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return []
    children = [node for node in ast.iter_child_nodes(statement)]
    return [statement, *(x for child in children for x in (_run_here(child) if isinstance(child, ast.stmt) else [child]))]


def _catches(handler: ast.ExceptHandler) -> bool:
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else {"BaseException"}
    return bool(names & {"AssertionError", "Exception", "BaseException"}) and not any(isinstance(x, ast.Raise) for x in ast.walk(handler))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_no_broken_assertion_can_go_unseen(path: Path) -> None:
    assert not (found := faults(path.read_text("utf-8"))), "\n".join(found)


def chapter(*sources: str, options: str = "") -> str:
    return HEADER + "# 99 · Planted\n\n" + "\n".join(f"```{{code-cell}} ipython3\n{options}{source}\n```\n" for source in sources)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        (chapter("x = 1"), "no assertion runs"),
        (chapter("def f():\n    assert 1 == 2"), "no assertion runs"),
        (chapter("assert 1 == 1", options=":tags: [raises-exception]\n"), "has the tag raises-exception"),
        (chapter("assert (1 == 2, 'always true')"), "asserts a constant"),
        (chapter("try:\n    assert 1 == 2\nexcept Exception:\n    pass"), "catches its own assertion"),
        (chapter("try:\n    assert 1 == 2\nexcept:\n    pass"), "catches its own assertion"),
    ],
)
def test_a_hidden_assertion_is_seen(text: str, sign: str) -> None:
    assert any(sign in fault for fault in faults(text))


def test_a_planted_broken_assertion_stops_the_build(tmp_path: Path) -> None:
    """One chapter whose second cell asserts what is not so, executed as the build executes all of them."""
    (tmp_path / "book").mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/99-planted\n")
    good = chapter("x = 1", "for value in (1, 2):\n    assert value < 3, value")
    assert not faults(good)
    for text, wanted in ((good, 0), (good.replace("< 3", "< 2"), 1)):
        (tmp_path / "book" / "99-planted.md").write_text(text)
        failures = execute_pages(tmp_path, tmp_path / "build", "key", 60)
        assert len(failures) == wanted
    assert "book/99-planted.md, code cell 2" in str(failures[0]) and "AssertionError: 2" in str(failures[0])
