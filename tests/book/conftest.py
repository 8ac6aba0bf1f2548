"""A small book, ready to build."""

import shutil
from pathlib import Path

import pytest
from small_book import JUDGE, ROOT, contents, write


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book with the real configuration and one page, whose cell judges a claim."""
    shutil.copy(ROOT / "_config.yml", tmp_path)
    (tmp_path / "book").mkdir()
    shutil.copytree(ROOT / "book" / "_static", tmp_path / "book" / "_static", ignore=shutil.ignore_patterns("vendor"))
    shutil.copytree(ROOT / "book" / "_ext", tmp_path / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "book" / "references.bib", tmp_path / "book")
    shutil.copy(ROOT / "book" / "claims-ledger.md", tmp_path / "book")
    write(tmp_path, "intro", "Start", JUDGE, "print('old' + 'output')", prose="It {verdict}`A1.1a`, {claim-count}`examined` of {claim-count}`all`, -3.8% on 2026-01-02. First text.")
    contents(tmp_path, "claims-ledger")
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "kvedu", tmp_path / "library" / "kvedu", ignore=skip)
    return tmp_path
