"""Grade many submissions: some at a time, each stored as soon as it is done, so that a run can be stopped and go on."""

from __future__ import annotations

import csv
import hashlib
import json
import secrets
import selectors
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kvedu.grading.judge import Known
from kvedu.grading.running import Running, Starter
from kvedu.grading.score import Score, score_events
from kvedu.grading.submission import Unreadable, read_submission

SEEDS = 2
"""Sets of inputs that every answer must be right on."""


def seeds_from(seed: int | None) -> list[int]:
    """The seeds of a run, fresh ones without a ``seed``."""
    first = secrets.randbits(30) if seed is None else seed
    return [first + i for i in range(SEEDS)]


def grade_all(
    paths: Iterable[Path], starter: Starter, seeds: list[int], *, lab: str | None = None, jobs: int = 1,
    done: Callable[[Path, Score], None],
) -> None:  # fmt: skip
    """Grade every file and hand each score to ``done`` when it is there. Ends what runs where it is interrupted.

    One submission that is broken, hangs or crashes costs the others nothing.
    """
    known = [Known(seed) for seed in seeds]
    waiting, running = iter(paths), {}
    selector = selectors.DefaultSelector()
    try:
        more = True
        while more or running:
            while more and len(running) < jobs:
                path = next(waiting, None)
                if path is None:
                    more = False
                    break
                try:
                    submission = read_submission(path, lab)
                except (Unreadable, OSError) as error:
                    done(path, Score("unreadable", str(error), lab or ""))
                    continue
                child = starter.start(submission, seeds)
                selector.register(child.source, selectors.EVENT_READ, child)
                running[child.pid] = (path, submission.lab, child)
            if not running:
                continue
            patience = max(0.0, min(child.deadline for _, _, child in running.values()) - time.monotonic())
            ready: list[Running] = [key.data for key, _ in selector.select(patience)]
            for path, its_lab, child in list(running.values()):
                alive = child not in ready or child.take_in()
                late = time.monotonic() >= child.deadline
                if alive and not late:
                    continue
                selector.unregister(child.source)
                child.end()
                del running[child.pid]
                seconds = time.monotonic() - child.started
                done(path, score_events(its_lab, child.events, known, cut_off=alive and late, seconds=seconds))
    finally:
        for _, _, child in running.values():
            child.end()


class Gradebook:
    """A folder with one ``results/NAME.json`` for each submission and, at the end, ``grades.csv``."""

    def __init__(self, folder: Path, root: Path, seed: int | None, lab: str | None) -> None:
        self.folder, self.root = folder, root
        (folder / "results").mkdir(parents=True, exist_ok=True)
        run = folder / "run.json"
        settings = {"seed": seeds_from(seed)[0], "lab": lab}
        if run.is_file():
            before = json.loads(run.read_text("utf-8"))
            if (seed is None or before["seed"] == seed) and before["lab"] == lab:
                settings = before
        run.write_text(json.dumps(settings), "utf-8")
        self.seeds = seeds_from(settings["seed"])

    def result_path(self, path: Path) -> Path:
        """Where the result of a submission is kept."""
        name = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.name
        return self.folder / "results" / f"{name.replace('/', '__')}.json"

    def is_done(self, path: Path) -> bool:
        """Whether this very file was graded with these very seeds."""
        stored = self.read(path)
        return bool(stored) and stored["file"] == _hash(path) and stored["seeds"] == self.seeds

    def read(self, path: Path) -> dict[str, Any] | None:
        """The stored result of a submission, under ``extra_data`` what this program needs of it; None without one."""
        try:
            return json.loads(self.result_path(path).read_text("utf-8"))["extra_data"]["run"] | {
                "results": json.loads(self.result_path(path).read_text("utf-8"))
            }
        except (OSError, ValueError, KeyError):
            return None

    def store(self, path: Path, score: Score) -> None:
        """Keep a result, whole or not at all."""
        results = score.gradescope()
        results["extra_data"]["run"] = {"file": _hash(path), "seeds": self.seeds}
        target = self.result_path(path)
        target.with_suffix(".part").write_text(json.dumps(results, indent=1, ensure_ascii=False), "utf-8")
        target.with_suffix(".part").replace(target)

    def write_csv(self, paths: Iterable[Path]) -> Path:
        """One row for each submission, one column for each exercise that occurs."""
        rows, columns = [], {}
        for path in paths:
            stored = self.read(path)
            if stored is None:
                continue
            results, ours = stored["results"], stored["results"]["extra_data"]["kvedu"]
            row = {"submission": self.result_path(path).stem, "lab": ours["lab"], "score": f"{results['score']:g}",
                   "max": f"{ours['max']:g}", "status": ours["status"], "seconds": results["execution_time"], "note": ours["note"]}  # fmt: skip
            passed = {name: int(right) for name, right in ours["passed"].items()}
            columns |= dict.fromkeys(passed)
            rows.append(row | passed)
        target = self.folder / "grades.csv"
        with target.open("w", newline="", encoding="utf-8") as file:
            head = ["submission", "lab", "score", "max", "status", "seconds", *sorted(columns), "note"]
            writer = csv.DictWriter(file, head, restval="")
            writer.writeheader()
            writer.writerows(rows)
        return target

    def common_mistakes(self, paths: Iterable[Path], most: int = 5) -> list[tuple[int, str]]:
        """How often each known mistake was made, the most frequent first."""
        made = Counter()
        for path in paths:
            if stored := self.read(path):
                made.update(f"{name}: {text}" for name, text in stored["results"]["extra_data"]["kvedu"]["mistakes"].items())
        return [(count, text) for text, count in made.most_common(most)]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
