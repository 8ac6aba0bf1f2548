"""Grade labs: ``python -m kvedu.grade submission.ipynb`` for one, ``python -m kvedu.grade folder/`` for a course."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from pathlib import Path

ALL_PASSED, NOT_ALL, UNGRADED, STOPPED = 0, 1, 3, 130
EXITS = "exit codes: 0 all exercises passed (a folder: all graded), 1 not all passed, 2 wrong usage, 3 could not be graded, 130 stopped"


def main(arguments: list[str] | None = None) -> int:
    """Grade what the command line names; the exit code says how it went (see ``--help``)."""
    options = _options(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"  # before PyTorch: a process with threads cannot fork safely
    from kvedu.grading.find import labs
    from kvedu.grading.running import Limits, Starter

    lab = f"lab{int(options.lab.removeprefix('lab')):02d}" if options.lab else None
    if lab and lab not in labs():
        print(f"kvedu: there is no {lab}; the labs are {', '.join(labs())}", file=sys.stderr)
        return 2
    starter = Starter(Limits(options.timeout, options.memory, options.cell_timeout))
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return (_folder if options.path.is_dir() else _one)(options, lab, starter)
    except KeyboardInterrupt:
        print("\nkvedu: stopped; the same command goes on where it was.", file=sys.stderr)
        return STOPPED
    finally:
        starter.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _one(options: argparse.Namespace, lab: str | None, starter: object) -> int:
    from kvedu.grading.batch import grade_all, seeds_from

    scores = []
    grade_all([options.path], starter, seeds_from(options.seed), lab=lab, done=lambda path, score: scores.append(score))
    (score,) = scores
    print(score.report())
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(score.json(), "utf-8")
    if score.status == "unreadable":
        return UNGRADED
    return ALL_PASSED if all(part.verdict.passed for part in score.parts if not part.optional) else NOT_ALL


def _folder(options: argparse.Namespace, lab: str | None, starter: object) -> int:
    from kvedu.grading.batch import Gradebook, grade_all

    paths = sorted(p for p in options.path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts and p.is_file())
    out = options.out or options.path.parent / f"{options.path.resolve().name}-grades"
    book = Gradebook(out, options.path, options.seed, lab)
    todo = [path for path in paths if not book.is_done(path)]
    if len(todo) < len(paths):
        print(f"{len(paths) - len(todo)} of {len(paths)} were graded before.", flush=True)
    start, count = time.monotonic(), 0

    def done(path: Path, score: object) -> None:
        nonlocal count
        book.store(path, score)
        count += 1
        _show_progress(count, len(todo), time.monotonic() - start, path.name)

    try:
        grade_all(todo, starter, book.seeds, lab=lab, jobs=options.jobs, done=done)
    finally:
        target = book.write_csv(paths)
    seconds = time.monotonic() - start
    if todo:
        print(f"\n{count} submissions in {seconds:.0f} s, {60 * count / max(seconds, 1e-9):.0f} a minute with {options.jobs} at a time")
    for times, text in book.common_mistakes(paths):
        print(f"{times:4} times  {text}")
    print(f"grades: {target}")
    return ALL_PASSED


def _show_progress(count: int, most: int, seconds: float, name: str) -> None:
    """A bar on a terminal, a line for every submission elsewhere."""
    left = seconds / count * (most - count)
    if sys.stderr.isatty():
        bar = "#" * round(30 * count / most)
        print(f"\r[{bar:30}] {count}/{most}, {left:.0f} s left  {name[:30]:30}", end="", file=sys.stderr, flush=True)
    else:
        print(f"{count}/{most} {name}", file=sys.stderr, flush=True)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kvedu.grade", description=__doc__, epilog=EXITS)
    parser.add_argument("path", type=Path, help="a notebook, or a folder of them")
    parser.add_argument("--lab", help="the lab that it must be, such as 02; otherwise each notebook says itself")
    parser.add_argument("--seed", type=int, help="for inputs that can be made again; without it they are fresh")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one notebook (120)")
    parser.add_argument("--cell-timeout", type=float, default=0.0, help="CPU seconds for one cell (a quarter of --timeout, 30 at most)")
    parser.add_argument("--memory", type=_bytes, default="4G", help="memory for one notebook, on top of PyTorch and model (4G)")
    parser.add_argument("--json", type=Path, help="write Gradescope's results.json (one notebook)")
    parser.add_argument("--jobs", type=int, default=1, help="notebooks at a time (a folder; 1)")
    parser.add_argument("--out", type=Path, help="where grades.csv and the results go (a folder; FOLDER-grades beside it)")
    options = parser.parse_args(arguments)
    if not options.path.exists():
        parser.error(f"{options.path} is not there")
    if options.lab and not re.fullmatch(r"(lab)?\d{1,2}", options.lab):
        parser.error(f"a lab is named by its number, such as 02, not {options.lab!r}")
    if options.timeout <= 0 or options.jobs < 1 or options.cell_timeout < 0:
        parser.error("--timeout and --jobs must be above 0, --cell-timeout not below")
    if options.json and options.path.is_dir():
        parser.error("--json is for one notebook; a folder's results go to --out")
    return options


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"a size is like 4G or 800M, not {text!r}")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


if __name__ == "__main__":
    sys.exit(main())
