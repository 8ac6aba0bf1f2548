"""A small book to build in tests: the real configuration, a copy of the library, pages written by the test."""

import os
import subprocess
import sys
from pathlib import Path

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


def build(book: Path, *options: str) -> tuple[int, str]:
    """Build with the book's own copy of the library; status and all that was printed."""
    command = [sys.executable, str(ROOT / "tools" / "build_book.py"), "--root", str(book), *options]
    environment = os.environ | {"PYTHONPATH": str(book / "library"), "KVEDU_COMMIT": "abc123", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def no_pages(book: Path) -> bool:
    return not (book / "_build" / "html").exists()
