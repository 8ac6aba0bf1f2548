"""What a training costs: processor and wall seconds of each stage, kept beside what the stage made."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator


@contextmanager
def clock(work: Path, stage: str) -> Iterator[None]:
    """Add the seconds of a block to a stage's; a stopped run that goes on adds to what was there."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        path, before = work / f"seconds-{stage}.json", spent(work).get(stage, {})
        now = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({name: round(s + before.get(name, 0.0), 1) for name, s in now.items()}) + "\n")
        os.replace(beside, path)


def spent(work: Path) -> dict[str, dict[str, float]]:
    """Seconds of every stage so far."""
    return {path.stem.removeprefix("seconds-"): json.loads(path.read_text()) for path in sorted(work.glob("seconds-*.json"))}
