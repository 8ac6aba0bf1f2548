"""Run every check over a built book: tests side by side, then those that measure time, then the solutions.

    python tools/run_tests.py

Ends with status 1 where any part failed, after having run all parts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NO_TESTS = 5  # pytest's status where it found none


def main() -> int:
    """Run the parts, print what each took, and return 0 where all passed."""
    one_thread = {"OMP_NUM_THREADS": "1"}  # two workers share two cores
    parts = [
        ("tests", ["-m", "not timing", "-n", "2", "--dist", "loadfile", "--durations", "10"], one_thread),
        ("tests that measure time, one by one", ["-m", "timing"], {}),
    ]
    if solutions := solution_notebooks():
        if bare := [path.name for path in solutions if not has_outputs(path)]:
            print(
                f"kvedu: {', '.join(bare)} hold no outputs, so nothing would be compared; run `make labs`.",
                file=sys.stderr,
            )
            return 1
        sanitize = ROOT / "labs" / "nbval.cfg"
        options = ["--nbval-sanitize-with", str(sanitize)] if sanitize.is_file() else []
        names = [str(path.relative_to(ROOT)) for path in solutions]
        parts.append(("solution notebooks", ["--nbval", "--nbval-current-env", *options, *names], {}))
    failed = [name for name, arguments, environment in parts if not passes(name, arguments, environment)]
    print("All checks passed." if not failed else f"kvedu: failed: {'; '.join(failed)}.", flush=True)
    return 1 if failed else 0


def passes(name: str, arguments: list[str], environment: dict[str, str]) -> bool:
    """Run one part in a pytest of its own, with a record of answers and runs that is neither the user's nor another part's."""
    print(f"== {name}", flush=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | environment | {"KVEDU_PROGRESS": str(Path(folder) / "progress.json")}
        done = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=environment, check=False)
    print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return done.returncode == 0 or (done.returncode == NO_TESTS and "timing" in arguments)


def solution_notebooks() -> list[Path]:
    """The executed solutions of the labs that can run here: kernel labs need Triton."""
    found = sorted((ROOT / "labs" / "solutions").glob("*.ipynb"))
    if find_spec("triton") is None:
        kernels = [path for path in found if "kernel_device()" in path.read_text("utf-8")]
        print(f"== Triton is not installed here: skipped {', '.join(path.name for path in kernels) or 'nothing'}", flush=True)
        found = [path for path in found if path not in kernels]
    return found


def has_outputs(path: Path) -> bool:
    """Whether any cell holds an output; nbval passes a notebook without outputs in silence."""
    return any(cell.get("outputs") for cell in json.loads(path.read_text("utf-8"))["cells"])


if __name__ == "__main__":
    sys.exit(main())
