"""The book on paper and in a bag: PDF, ePub, zipped HTML, and the two-page cheat-sheet, into ``_build/print``.

    python tools/build_print.py [--root FOLDER] [--only pdf|epub|zip|sheet]

Needs a built book (`make book`), whose executed notebooks it reuses, and for the PDFs a Chrome or Chromium. Nothing
is fetched.
"""

import argparse
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from book_print_page import print_page

ROOT = Path(__file__).resolve().parents[1]
NAME = "kvedu-book"
SHEET_PAGES = 2


def sphinx(root: Path, builder: str) -> Path:
    """Build with another of Sphinx's builders, from the cache of executed notebooks; the folder."""
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    target = root / "_build" / f"print-{builder}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    cache = root / "_build" / ".jupyter_cache"
    command = [str(jupyter_book), "build", str(root), "--path-output", str(target), "--builder", "custom", "--custom-builder", builder, "--quiet"]
    if cache.is_dir():  # the notebooks are executed already
        shutil.copytree(cache, target / "_build" / ".jupyter_cache")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"kvedu: Sphinx's {builder} builder failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return target / "_build" / builder


def make_pdf(root: Path, target: Path) -> Path:
    """All pages as one, printed. Sphinx puts that page beside the first chapter, with links as if it stood above it."""
    folder = sphinx(root, "singlehtml")
    page = Path(shutil.copyfile(folder / "book" / "intro.html", folder / "index.html"))
    return print_page(page, target / f"{NAME}.pdf")


def make_epub(root: Path, target: Path) -> Path:
    """An ePub with still pictures for the living figures."""
    found = next(sphinx(root, "epub").glob("*.epub"))
    with zipfile.ZipFile(found) as bag:
        for name in bag.namelist():
            if name.endswith(".xhtml"):
                ElementTree.fromstring(bag.read(name))  # what a reader cannot parse it does not show
    return Path(shutil.copyfile(found, target / f"{NAME}.epub"))


def make_zip(root: Path, target: Path) -> Path:
    """The HTML pages in one file, to be opened from the disk."""
    html, file = root / "_build" / "html", target / f"{NAME}-html.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bag:
        for path in sorted(html.rglob("*")):
            if path.is_file():
                bag.write(path, Path(NAME) / path.relative_to(html))
    return file


def make_sheet(root: Path, target: Path) -> Path:
    """The cheat-sheet, which must fit its two pages."""
    file = print_page(root / "_build" / "html" / "book" / "cheat-sheet.html", target / "kvedu-cheat-sheet.pdf", sheet=True)
    if (pages := page_count(file)) != SHEET_PAGES:
        raise SystemExit(f"kvedu: the cheat-sheet has {pages} pages; it must have {SHEET_PAGES}: shorten book/cheat-sheet.md")
    return file


def page_count(file: Path) -> int:
    """Pages of a PDF that Chromium wrote."""
    return len(re.findall(rb"/Type\s*/Page\b", file.read_bytes()))


MAKERS: dict[str, Callable[[Path, Path], Path]] = {"zip": make_zip, "sheet": make_sheet, "pdf": make_pdf, "epub": make_epub}


def main() -> int:
    """Make all, or one."""
    parser = argparse.ArgumentParser(description="PDF, ePub, zip and cheat-sheet.")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--only", choices=list(MAKERS))
    options = parser.parse_args()
    root = options.root.resolve()
    if not (root / "_build" / "html" / "index.html").is_file():
        print("kvedu: there is no built book; run `make book` first.", file=sys.stderr)
        return 1
    target = root / "_build" / "print"
    target.mkdir(exist_ok=True)
    for name, make in MAKERS.items():
        if options.only in (None, name):
            file = make(root, target)
            pages = f", {page_count(file)} pages" if file.suffix == ".pdf" else ""
            print(f"{file} ({file.stat().st_size / 1e6:.1f} MB{pages})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
