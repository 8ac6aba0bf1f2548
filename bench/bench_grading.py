"""Grade a course of made-up submissions: is one lost, does one get a wrong score, and how many a minute?

    python bench/bench_grading.py [--submissions 300] [--jobs 2] [--timeout 240]

The grader's own command runs in a process of its own, is stopped in the middle and given again. Ends with
status 1 where a submission is missing or mis-scored.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from made_submissions import Made, Maker, special  # noqa: E402

from kvedu.book.rows import save_row  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results"
SHARES = {"lab02": 0.8, "lab03": 0.12, "lab01": 0.08}
"""Lab 2 is quick to run; the others show that more than one lab is graded in one go."""


def main() -> int:
    """Make, grade with an interruption, compare, store."""
    parser = argparse.ArgumentParser(description="Grade a course of made-up submissions.")
    parser.add_argument("--submissions", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=240.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name) / "course", Path(name) / "grades"
        made = make_course(folder, options.submissions)
        command = [sys.executable, "-m", "kvedu.grade", str(folder), "--out", str(out), "--jobs", str(options.jobs),
                   "--timeout", str(options.timeout), "--cell-timeout", "15", "--seed", "1"]  # fmt: skip
        start = time.monotonic()
        stopped_at = run_until(command, out, options.submissions // 3)
        done = subprocess.run(command, check=False)
        seconds = time.monotonic() - start
        wrong = compare(out / "grades.csv", made) if done.returncode == 0 else ["the grader failed"]
    for line in wrong:
        print("WRONG", line)
    values = {
        "submissions": len(made), "statuses": dict(Counter(one.status for one in made.values())), "wrong": len(wrong),
        "stopped_after": stopped_at, "seconds": round(seconds, 1), "per_minute": round(60 * len(made) / seconds, 1),
        "jobs": options.jobs, "timeout": options.timeout,
        "judge_cpu_seconds": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, 1),
    }  # fmt: skip
    print(values)
    written = "python bench/bench_grading.py" + "".join(f" {argument}" for argument in sys.argv[1:])
    print("stored in", os.path.relpath(save_row("grading", values, command=written, folder=RESULTS)))
    return 1 if wrong else 0


def make_course(folder: Path, count: int) -> dict[str, Made]:
    """Every special kind once for each lab, right and wrong answers for the rest, in a shuffled order of names."""
    folder.mkdir(parents=True)
    made: list[Made] = []
    for lab, share in SHARES.items():
        maker, most = Maker(lab, seed=7), round(count * share)
        kinds = [make() for name, make in special(maker, "lab02").items() if name != "another lab"]  # no lab is asked for here
        these = kinds[:most]
        these += [maker.wrong() if i % 2 else maker.right() for i in range(most - len(these))]
        made += these
    course = {}
    for number, one in enumerate(sorted(made, key=lambda one: hash_of(one.data))):
        path = folder / f"s{number:03d}.ipynb"
        path.write_bytes(one.data)
        course[path.name] = one
    return course


def hash_of(data: bytes) -> int:
    """An order that has nothing to do with kinds and is the same every time."""
    return sum(data[:: max(1, len(data) // 997)]) % 9973


def run_until(command: list[str], out: Path, count: int) -> int:
    """Run the command and stop it, as with Ctrl-C, when ``count`` results are there; how many there were."""
    process = subprocess.Popen(command)
    while process.poll() is None and len(list(out.glob("results/*.json"))) < count:
        time.sleep(0.5)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait()
    return len(list(out.glob("results/*.json")))


def compare(grades: Path, made: dict[str, Made]) -> list[str]:
    """What differs from what each submission must get, a line each."""
    with grades.open(encoding="utf-8") as file:
        rows = {row["submission"]: row for row in csv.DictReader(file)}
    wrong = [f"{name} is lost" for name in made.keys() - rows.keys()]
    for name, row in rows.items():
        passed = {column for column, value in row.items() if "." in column and value == "1"}
        if (row["status"], passed) != (made[name].status, made[name].passed):
            wrong.append(f"{name} ({made[name].kind}): {row['status']}, {sorted(passed)}; wanted {made[name].status}, {sorted(made[name].passed)}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
