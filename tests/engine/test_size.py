"""The engine proper can be read in one sitting."""

from pathlib import Path

import kvedu

PROPER = (
    "engine/sequence", "engine/blocks", "engine/order", "engine/preempt", "engine/plan", "engine/scheduler", "engine/batch",
    "engine/executor", "engine/choose", "engine/engine", "caches/blocks", "caches/block_tables",
)  # fmt: skip
"""Sequence, block manager, scheduler, batch, executor, engine; with the files that each was split into."""


def test_the_engine_proper_stays_under_1200_lines():
    """Must hold 6. Policies of reuse, host memory, metrics, workloads and the simulator are beside it."""
    folder = Path(kvedu.__file__).parent
    lines = {name: len((folder / f"{name}.py").read_text("utf-8").splitlines()) for name in PROPER}
    assert sum(lines.values()) < 1200, lines
