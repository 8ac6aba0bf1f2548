"""Measure the stored rows again that are out of date on this machine: ``python tools/refresh_rows.py [--list]``.

A row is out of date where it comes from another machine, or the library or the benches changed since its
commit. Each row that is measured is stored at once, so a run that was stopped goes on where it was.
"""

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

from kvedu.book.provenance import machine_info
from kvedu.book.rows import Row, load_rows, rows_folder

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("src/kvedu", "bench", "tools", ":!bench/results")


def main() -> int:
    """Refresh, or list what would be; 1 where a command failed."""
    parser = argparse.ArgumentParser(description="Refresh the stored rows that are out of date.")
    parser.add_argument("--list", action="store_true", help="say what is out of date, run nothing")
    only_list = parser.parse_args().list
    rows = [load_rows(path.stem) for path in sorted(rows_folder().glob("*.json"))]
    commands = list(dict.fromkeys(found[-1].command for found in rows if is_stale(found)))
    print(f"{len(rows)} stored rows, {len(commands)} commands to run", flush=True)
    failed = []
    for number, command in enumerate(commands, 1):
        print(f"[{number}/{len(commands)}] {command}", flush=True)
        if only_list:
            continue
        start = time.perf_counter()
        first, *rest = shlex.split(command)
        words = [sys.executable if first in ("python", "python3") else first, *rest]
        if subprocess.run(words, cwd=ROOT, check=False).returncode:
            failed.append(command)
        print(f"{time.perf_counter() - start:.0f} s", flush=True)
    if failed:
        print(f"kvedu: these commands failed: {'; '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


def is_stale(rows: list[Row]) -> bool:
    """Whether no row of this machine was measured with the library and the benches as they are now."""
    here = machine_info()
    return all(row.machine != here or changed_since(row.commit) for row in rows)


def changed_since(commit: str) -> bool:
    """Whether the library, the benches or the tools differ from ``commit``; true where git does not know it."""
    if commit.endswith("+"):
        return True
    done = subprocess.run(
        ["git", "diff", "--quiet", commit, "--", *MEASURED], cwd=ROOT, capture_output=True, check=False
    )
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
