"""No verdict hangs on a clock that is read in the build: a busy machine must not turn one.

Names are followed through each chapter's cells, in their order: what reads a clock, what is computed from that, and what a
verdict is decided by. Where a clock may decide after all, the margin stands here, factor by factor.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvedu.book.claims import all_claims

BOOK = Path(__file__).resolve().parents[2] / "book"
CHAPTERS = sorted(BOOK.glob("[0-9][0-9]-*.md"))
CLOCKS = {"perf_counter", "process_time", "thread_time", "monotonic", "measure", "read_bandwidth"}
"""What reads a clock; so does the length of an engine's step, ``last.time - last.start``, off the virtual clock."""
VIRTUAL = {"simulate", "roofline_seconds"}
MARGIN = {
    "A1.3a": "the machine's ridge decides: 12 tokens, where 256 are asked",
    "A1.3b": "the machine's ridge decides: 12 sequences, where 1 is asked",
    "A1.3c": "18-fold at 256 tokens, 4-fold at 4, where 1 is asked",
    "A1.3d": "counted bytes decide; the clock's 18-fold stands where 1.2 is asked",
    "A7.3b": "slots are counted; the clock only stamps the run's steps",
    "A8.1a": "the sweep's slope, steps of 32 over steps of 16: 1.5-fold, the best of fifteen each, where 1 is asked",
    "A8.1b": "13-fold, where 1.5 is asked",
    "A8.1d": "13-fold, where 1.5 is asked",
    "A8.2a": "what is left out is 15 % of the time to the first token, where 2 % are asked",
    "A8.2b": "the same clock on both sides",
    "A8.2c": "2.5-fold, the best of fifteen each, where 1 is asked",
    "A9.3d": "5.6-fold, best of many and in turns, where 2 is asked",
}


class Follow(ast.NodeVisitor):
    """Which names hold something that came from a clock, and which claims are decided by one."""

    def __init__(self) -> None:
        self.clocked: set[str] = set()
        self.decided: set[str] = set()

    def from_clock(self, node: ast.AST) -> bool:
        inner = list(ast.walk(node))
        names = {n.id for n in inner if isinstance(n, ast.Name)} | {n.attr for n in inner if isinstance(n, ast.Attribute)}
        if names & VIRTUAL:
            return False
        own = {name.id for n in inner if isinstance(n, ast.comprehension) for name in ast.walk(n.target) if isinstance(name, ast.Name)}
        if isinstance(node, ast.FunctionDef):
            own |= {n.arg for n in inner if isinstance(n, ast.arg)} | {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        loaded = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - own
        return bool(loaded & self.clocked or names & CLOCKS or any(map(length_of_a_step, inner)))

    def put(self, target: ast.AST, clocked: bool) -> None:
        base = target
        while isinstance(base, (ast.Subscript, ast.Attribute)):
            base = base.value
        for name in (n.id for n in ast.walk(base) if isinstance(n, ast.Name)):
            whole = isinstance(target, (ast.Name, ast.Tuple, ast.List, ast.Starred))
            if clocked:
                self.clocked.add(name)
            elif whole:
                self.clocked.discard(name)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
                for one, value in zip(target.elts, node.value.elts):
                    self.put(one, self.from_clock(value))
            else:
                self.put(target, self.from_clock(node.value))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if self.from_clock(node.value):
            self.put(node.target, True)

    def visit_For(self, node: ast.For) -> None:
        self.put(node.target, self.from_clock(node.iter))
        for _ in range(2):  # what the loop's end leaves reaches its beginning
            for inner in node.body:
                self.visit(inner)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.put(ast.Name(node.name), self.from_clock(node))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend", "setdefault") and any(map(self.from_clock, node.args)):
            self.put(node.func.value, True)
        if isinstance(node.func, ast.Name) and node.func.id == "verdict" and len(node.args) > 1:
            claim = node.args[0].value if isinstance(node.args[0], ast.Constant) else ast.unparse(node.args[0])
            if self.from_clock(node.args[1]):
                self.decided.add(str(claim))
        self.generic_visit(node)


def length_of_a_step(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Attribute) and node.right.attr == "start"


def decided_by_clock(text: str) -> set[str]:
    """The claims of a chapter's source whose verdict depends on a clock."""
    follow = Follow()
    for cell in cells(text):
        follow.visit(ast.parse(cell))
    return follow.decided


def cells(text: str) -> Iterator[str]:
    for cell in re.findall(r"^```\{code-cell\}.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        cell = re.sub(r"\A---\n.*?\n---\n", "", cell, flags=re.DOTALL)
        yield "\n".join(line for line in cell.splitlines() if not re.match(r":\w|%|!", line))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_busy_machine_turns_no_verdict(path: Path) -> None:
    found = decided_by_clock(path.read_text("utf-8"))
    assert not found - set(MARGIN), f"decide {', '.join(sorted(found - set(MARGIN)))} by counted work or a stored row, and show the clock beside it"


def test_margins_are_of_claims() -> None:
    assert set(MARGIN) <= {claim.id for claim in all_claims()}


def test_a_clock_is_followed() -> None:
    page = (
        "```{code-cell} ipython3\n:tags: [x]\nimport time\ndef seconds(f):\n    start = time.perf_counter()\n    f()\n    return time.perf_counter() - start\n```\n"
        "```{code-cell} ipython3\nbest = {}\nfor n in (1, 2):\n    best[n] = seconds(print)\nratio, count = best[2] / best[1], 3\n"
        "verdict('A', ratio > 2, measured='')\nverdict('B', count > 2, measured=f'{ratio}')\nratio = 7\nverdict('C', ratio > 2, measured='')\n```\n"
    )
    assert decided_by_clock(page) == {"A"}
