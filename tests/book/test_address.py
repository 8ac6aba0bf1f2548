"""One setting holds the public address: without it no page links there, with it every such link is right."""

import json
import re
from pathlib import Path

from small_book import build, contents

ADDRESS = "https://github.com/made-up-owner/made-up-book"
CELL = {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": "1 + 1", "outputs": [], "id": "a"}
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def links(folder: Path, page: str) -> set[str]:
    html = (folder / "_build" / "html" / page).read_text()
    return {url for url in re.findall(r'href="(https?://[^"]*)"', html) if "github" in url or "colab" in url}


def test_address(book: Path) -> None:
    (book / "labs").mkdir()
    title = {"cell_type": "markdown", "metadata": {}, "source": "# Lab 1", "id": "b"}
    notebook = {"cells": [title, CELL], "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}
    (book / "labs" / "01.ipynb").write_text(json.dumps(notebook))
    contents(book, "claims-ledger")
    with (book / "_toc.yml").open("a") as toc:
        toc.write("  - file: labs/01\n")

    status, log = build(book)
    assert status == 0, log
    assert not links(book, "book/intro.html") and not links(book, "labs/01.html")

    config = book / "_config.yml"
    config.write_text(config.read_text().replace('url: ""', f'url: "{ADDRESS}"', 1))
    status, log = build(book)
    assert status == 0, log
    assert links(book, "book/intro.html") == {
        ADDRESS,
        f"{ADDRESS}/edit/main/book/intro.md",
        f"{ADDRESS}/issues/new?title=Issue%20on%20page%20%2Fbook/intro.html&body=Your%20issue%20content%20here.",
    }
    colab = "https://colab.research.google.com/github/made-up-owner/made-up-book/blob/main/labs/01.ipynb"
    assert colab in links(book, "labs/01.html")
    assert f"{ADDRESS}/edit/main/labs/01.ipynb" in links(book, "labs/01.html")
