"""`make print`: a small book becomes a PDF, an ePub that can be parsed, a zip that opens; the cheat-sheet has two pages."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from book_print_page import BROWSERS, print_page
from build_print import page_count
from small_book import HEADER, ROOT, build

CELL = "```{code-cell} ipython3\nprint(6 * 7)\n```\n"
FIGURE = "```{live-figure} memory\n:name: fig-memory\nWhat fits.\n```\n"
ASKED = "```{questions} questions/01.py\n```\n"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what was printed of a book of three pages."""
    if not any(shutil.which(name) for name in ("chromium", "google-chrome", "chrome")):
        pytest.skip("no Chrome or Chromium to print with")
    root = tmp_path_factory.mktemp("book")
    pages = root / "book"
    pages.mkdir()
    shutil.copy(ROOT / "_config.yml", root)
    for name in ("_static", "_ext", "questions"):
        shutil.copytree(ROOT / "book" / name, pages / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("references.bib", "notation.md", "cheat-sheet.md"):
        shutil.copy(ROOT / "book" / name, pages)
    (pages / "intro.md").write_text(f"{HEADER}# Start\n\nFirst text, $x^2$.\n\n{CELL}\n{FIGURE}\n{ASKED}")
    (root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/intro\nchapters:\n  - file: book/notation\n  - file: book/cheat-sheet\n"
    )
    (root / "library").mkdir()
    shutil.copytree(ROOT / "src" / "kvedu", root / "library" / "kvedu", ignore=shutil.ignore_patterns("__pycache__"))
    status, said = build(root)
    assert status == 0, said
    environment = os.environ | {"PYTHONPATH": str(root / "library")}
    command = [sys.executable, str(ROOT / "tools" / "build_print.py"), "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "_build" / "print"


def test_the_cheat_sheet_has_two_pages(printed: Path) -> None:
    assert page_count(printed / "kvedu-cheat-sheet.pdf") == 2


def test_the_pdf_holds_all_pages(printed: Path) -> None:
    assert page_count(printed / "kvedu-book.pdf") >= 4
    assert (printed / "kvedu-book.pdf").stat().st_size > 50_000


def test_a_page_whose_files_are_missing_is_not_printed(tmp_path: Path) -> None:
    """A single page stood a folder too deep once: no style, no pictures, raw formulas, and a PDF all the same."""
    if not any(shutil.which(name) for name in BROWSERS):
        pytest.skip("no Chrome or Chromium to print with")
    for name, wants in (("style", '<link rel="stylesheet" href="gone.css">'), ("picture", '<img src="gone.png" alt="">')):
        page = tmp_path / f"{name}.html"
        page.write_text(f"<html><head>{wants}</head><body>Text.</body></html>")
        with pytest.raises(SystemExit, match="1 files|gone"):
            with ThreadPoolExecutor(1) as pool:  # Playwright wants a thread without another's event loop
                pool.submit(print_page, page, tmp_path / "out.pdf").result()
    assert not (tmp_path / "out.pdf").exists()


def test_the_epub_has_pictures_and_no_scripts(printed: Path) -> None:
    with zipfile.ZipFile(printed / "kvedu-book.epub") as bag:
        page = bag.read("book/intro.xhtml").decode()
    assert "42" in page and 'role="img"' in page and "It fits: 16 sequences" in page
    assert "kvfig-data" not in page and "kvq-data" not in page and "Later tokens bring their own queries" in page


def test_formulas_are_mathml_in_the_epub_and_left_to_mathjax_on_the_page(printed: Path) -> None:
    with zipfile.ZipFile(printed / "kvedu-book.epub") as bag:
        assert "<msup>" in bag.read("book/intro.xhtml").decode()
    page = (printed.parent / "html" / "book" / "intro.html").read_text("utf-8")
    assert "<msup>" not in page and r"\(x^2\)" in page and "tex-svg.js" in page


def test_the_zip_opens_from_the_disk(printed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(printed / "kvedu-book-html.zip") as bag:
        bag.extractall(tmp_path)
    page = (tmp_path / "kvedu-book" / "book" / "intro.html").read_text("utf-8")
    for link in re.findall(r'(?:src|href)="(\.\./_static/[^"?]+)', page):
        assert (tmp_path / "kvedu-book" / "book" / link).is_file(), link
