"""The build of a small book: a failure is named, fails every time and leaves no old pages; good pages are current."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

"""
JUDGE = "from kvedu.book.ledger import verdict\nverdict('A1.1a', 2 > 1, measured='ratio 7.25')"


def write(book: Path, name: str, title: str, *cells: str, prose: str = "") -> None:
    code = "\n".join(f"```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells)
    (book / "book" / f"{name}.md").write_text(f"{HEADER}# {title}\n\n{prose}\n\n{code}")


def contents(book: Path, *names: str) -> None:
    chapters = "".join(f"  - file: book/{name}\n" for name in names)
    (book / "_toc.yml").write_text(f"format: jb-book\nroot: book/intro\nchapters:\n{chapters}")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book with the real configuration and one page, whose cell judges a claim."""
    shutil.copy(ROOT / "_config.yml", tmp_path)
    (tmp_path / "book").mkdir()
    shutil.copytree(ROOT / "book" / "_static", tmp_path / "book" / "_static", ignore=shutil.ignore_patterns("vendor"))
    shutil.copytree(ROOT / "book" / "_ext", tmp_path / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "book" / "references.bib", tmp_path / "book")
    shutil.copy(ROOT / "book" / "claims-ledger.md", tmp_path / "book")
    write(tmp_path, "intro", "Start", JUDGE, "print('old' + 'output')", prose="It {verdict}`A1.1a`. First text.")
    contents(tmp_path, "claims-ledger")
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "kvedu", tmp_path / "library" / "kvedu", ignore=skip)
    return tmp_path


def build(book: Path, *options: str) -> tuple[int, str]:
    """Build with the book's own copy of the library; status and all that was printed."""
    command = [sys.executable, str(ROOT / "tools" / "build_book.py"), "--root", str(book), *options]
    environment = os.environ | {"PYTHONPATH": str(book / "library"), "KVEDU_COMMIT": "abc123", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def no_pages(book: Path) -> bool:
    return not (book / "_build" / "html").exists()


def test_a_good_book_is_current_and_a_broken_one_leaves_nothing(book: Path) -> None:
    """C041: verdicts and text are current, a second run does nothing, and after a failure no old page stays."""
    status, log = build(book)
    assert status == 0, log
    page = (book / "_build/html/book/intro.html").read_text()
    assert "First text." in page and "oldoutput" in page and 'href="#verdict-A1.1a">holds' in page and "ratio 7.25" in page
    ledger = (book / "_build/html/book/claims-ledger.html").read_text()
    assert 'href="intro.html#verdict-A1.1a"' in ledger and "Of 175 claims 1 hold," in ledger and "174 are not examined yet" in ledger

    status, log = build(book)
    assert status == 0 and "up to date" in log

    write(book, "intro", "Start", JUDGE, "print('old' + 'output')", prose="It {verdict}`A1.1a`. Second text.")
    status, log = build(book)
    assert status == 0 and "unchanged" in log, log
    page = (book / "_build/html/book/intro.html").read_text()
    assert "Second text." in page and "oldoutput" in page, "the cached outputs must come back with the new text"

    (book / "library" / "kvedu" / "units.py").open("a").write("\n# a change in the library\n")
    status, log = build(book, "--cell-timeout", "60")
    assert status == 0 and "unchanged" not in log and "up to date" not in log, "the library changed, so every cell runs again"

    write(book, "intro", "Start", JUDGE, "import time\ntime.sleep(60)", prose="It {verdict}`A1.1a`. Third text.")
    for _ in range(2):
        status, log = build(book, "--cell-timeout", "2")
        assert status != 0 and no_pages(book)
        assert "book/intro.md, code cell 2" in log and "took longer than 2 s" in log


def test_each_kind_of_failing_cell_is_named_twice(book: Path) -> None:
    """C039, C041: a raise, an unknown magic and a syntax error fail the build, each time, with page and cell."""
    write(book, "raises", "A", "x = 1", "raise RuntimeError('planted')")
    write(book, "magic", "B", "%no_such_magic\ny = 1\nraise ValueError('never reached')")
    write(book, "syntax", "C", "x = 1", "y = 2", "def broken(:")
    contents(book, "claims-ledger", "raises", "magic", "syntax")
    for _ in range(2):
        status, log = build(book)
        assert status != 0 and no_pages(book)
        assert "book/raises.md, code cell 2 (line 21)" in log and "RuntimeError: planted" in log
        assert "book/magic.md, code cell 1" in log and "book/syntax.md, code cell 3" in log and "SyntaxError" in log
        assert "3 of the book's notebooks failed" in log
        assert "book/intro.md, code cell" not in log


def test_prose_without_a_computation_fails(book: Path) -> None:
    """A page that claims a verdict which no executed cell recorded fails the build with page and claim named."""
    write(book, "intro", "Start", "x = 1", prose="It {verdict}`A1.1b`.")
    for _ in range(2):
        status, log = build(book)
        assert status != 0 and no_pages(book)
        assert "book/intro claims a verdict on A1.1b" in log
