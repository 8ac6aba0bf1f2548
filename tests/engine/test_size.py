"""The engine proper can be read in one sitting."""

import ast
from pathlib import Path

import kvedu

PROPER = (
    "engine/sequence", "engine/blocks", "engine/order", "engine/preempt", "engine/plan", "engine/scheduler", "engine/batch",
    "engine/executor", "engine/choose", "engine/engine", "engine/steps", "engine/flight", "caches/blocks", "caches/block_tables",
)  # fmt: skip
"""Sequence, block manager, scheduler, batch, executor, engine; with the files that each was split into."""


def code_lines(source: str) -> int:
    """Lines that are code: no blank ones, no comments, no docstrings."""
    said = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    docstrings = {number for node in said for number in range(node.lineno, node.end_lineno + 1)}
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and number not in docstrings for number, line in lines)


def test_the_engine_proper_stays_small():
    """Must hold 6. Policies of reuse, host memory, recordings, metrics, workloads and the simulator are beside it."""
    folder = Path(kvedu.__file__).parent
    lines = {name: code_lines((folder / f"{name}.py").read_text("utf-8")) for name in PROPER}
    assert sum(lines.values()) < 920, lines
