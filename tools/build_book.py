"""Build the book: execute its notebooks, render its pages, put the library's wheel beside them.

    python tools/build_book.py [--root FOLDER] [--force] [--cell-timeout SECONDS]

Does nothing where nothing changed since the last good build. A failure leaves no pages behind, so that
nobody reads old ones, and every next build fails again until it is mended.
"""

import argparse
import errno
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from book_execute import execute_pages
from book_inputs import execution_key, page_key
from book_vendor import VendorError, install_scripts

UNUSED = ("*.css.map", "*.js.map", "*.ttf")


def main() -> int:
    """Run the build; 0 where the pages are good and current."""
    parser = argparse.ArgumentParser(description="Build the book.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--force", action="store_true", help="execute and render everything again")
    parser.add_argument("--cell-timeout", type=int, default=300, metavar="SECONDS")
    options = parser.parse_args()
    root = options.root.resolve()
    build = root / "_build"
    try:
        return build_book(root, build, force=options.force, cell_timeout=options.cell_timeout)
    except VendorError as error:
        return _failed(build, str(error))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return _failed(build, "the disk is full: free some space and run it again.")


def build_book(root: Path, build: Path, *, force: bool, cell_timeout: int) -> int:
    """Build ``root`` into ``build``; the exit status."""
    start = time.perf_counter()
    spec = find_spec("kvedu")
    assert spec is not None and spec.origin is not None, "kvedu is installed by `make`"
    package = Path(spec.origin).parent
    stamp = build / "book.stamp"
    pages = page_key(root, package)
    if not force and stamp.is_file() and stamp.read_text() == pages and (build / "html" / "index.html").is_file():
        print("The book is up to date.")
        return _say_where(build)
    build.mkdir(exist_ok=True)
    stamp.unlink(missing_ok=True)
    if force:
        shutil.rmtree(build / "executed", ignore_errors=True)
    install_scripts(root)

    _set_environment(root, build)
    print("== executing the notebooks", flush=True)
    failures = execute_pages(root, build, execution_key(root, package), cell_timeout)
    if failures:
        log = build / "failures.log"
        log.write_text("\n\n".join(map(str, failures)) + "\n", encoding="utf-8")
        print(f"\n{log.read_text('utf-8')}", file=sys.stderr)
        return _failed(
            build,
            f"{len(failures)} of the book's notebooks failed: "
            + "; ".join(f"{f.page}, code cell {f.cell}" for f in failures),
        )

    print("== rendering the pages", flush=True)
    _remove_pages(build)
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    command = [str(jupyter_book), "build", str(root), "-W", "--keep-going", "--quiet"]
    if subprocess.run(command, check=False).returncode:
        return _failed(build, "the pages could not be rendered without warnings; they are listed above.")
    _remove_unused(build)
    if (root / "pyproject.toml").is_file() and not _build_wheel(root, build):
        return _failed(build, "the wheel of the library could not be built; pip's words are above.")
    stamp.write_text(pages)
    print(f"The book is built ({time.perf_counter() - start:.0f} s).")
    return _say_where(build)


def _set_environment(root: Path, build: Path) -> None:
    profile = build / "ipython" / "profile_default"  # a profile of the build's own: no startup files of the user's
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")
    os.environ["IPYTHONDIR"] = str(build / "ipython")
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # no debugger message in a cell's output
    if (root / "bench" / "results").is_dir():
        os.environ["KVEDU_ROWS"] = str(root / "bench" / "results")


def _remove_unused(build: Path) -> None:
    """What the theme brings and no page asks for, some megabytes: source maps, its translations' sources, fonts for browsers without woff2."""
    static = build / "html" / "_static"
    for kind in UNUSED:
        for path in static.rglob(kind):
            path.unlink()
    shutil.rmtree(static / "locales", ignore_errors=True)


def _remove_pages(build: Path) -> None:
    for name in ("html", ".doctrees", "jupyter_execute"):
        shutil.rmtree(build / name, ignore_errors=True)


def _build_wheel(root: Path, build: Path) -> bool:
    settings = build / "wheel.cfg"
    settings.write_text(f"[build]\nbuild_base = {build / 'wheel'}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    environment = os.environ | {"DIST_EXTRA_CONFIG": str(settings)}
    done = subprocess.run([*command, "--wheel-dir", str(build / "html"), str(root)], env=environment, check=False)
    shutil.rmtree(build / "wheel", ignore_errors=True)
    return done.returncode == 0


def _failed(build: Path, why: str) -> int:
    _remove_pages(build)
    print(f"kvedu: {why}", file=sys.stderr)
    return 1


def _say_where(build: Path) -> int:
    page = build / "html" / "index.html"
    print(f"Open {page.as_uri()}\nor run `make serve`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
