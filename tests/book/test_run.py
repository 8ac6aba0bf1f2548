"""The line to a chapter's lab: always a page and a command, Colab only with an address; and the versions."""

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
from kvedu_run import run_line, versions_line  # noqa: E402

LABS = ["labs/01-what-is-the-kv-cache", "labs/04-paged-attention"]


def line(page: str, address: str = "") -> str:
    return run_line(page, LABS, address, "main", "../labs/04-paged-attention.html")


def test_without_an_address_nothing_leads_outside() -> None:
    text = line("book/04-paged-attention")
    assert "http" not in text and 'href="../labs/04-paged-attention.html"' in text
    assert "make lab" in text and "04-paged-attention.ipynb" in text


def test_with_an_address_colab_opens_a_notebook_that_exists() -> None:
    text = line("book/01-what-is-the-kv-cache", "https://github.com/made-up-owner/made-up-book")
    link = "https://colab.research.google.com/github/made-up-owner/made-up-book/blob/main/labs/01-what-is-the-kv-cache.ipynb"
    assert f'href="{link}"' in text
    assert (ROOT / link.split("/blob/main/")[1]).is_file()


@pytest.mark.parametrize("page", ["book/05-x", "book/glossary", "labs/01-what-is-the-kv-cache", "book/intro"])
def test_no_lab_no_line(page: str) -> None:
    assert line(page, "https://github.com/a/b") == ""


def test_versions_are_those_in_use() -> None:
    assert f"torch {torch.__version__}" in versions_line() and "Python 3." in versions_line()
