"""Mends what the theme leaves out for screen readers, in the finished pages.

Each entry of ``MENDS`` is something that axe-core calls serious; the browser tests look at every page again.
"""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

MENDS = (
    # The arrows beside chapters in the contents have no name.
    (re.compile(r"<summary>(?=\s*<span class=\"toctree-toggle\")"), '<summary aria-label="Show or hide the pages below">'),
    # A name that is not what the button says: without it, the words inside are its name.
    (re.compile(r'(<button class="btn search-button-field[^>]*?) aria-label="Search"'), r"\1"),
    (re.compile(r'(<summary) aria-label="Toggle hidden content"'), r"\1"),
    # Three icons of one button, of which one is seen; the button has a name of its own.
    (re.compile(r'(<i class="theme-switch[^>]*?) title="[^"]*"'), r"\1"),
    # A list whose children are not list items.
    (re.compile(r'<div role="list" class="citation-list">'), '<div class="citation-list">'),
)


def mend(text: str) -> str:
    """A page with the theme's gaps closed."""
    for pattern, replacement in MENDS:
        text = pattern.sub(replacement, text)
    return text


def mend_pages(app: Sphinx, error: Exception | None) -> None:
    """After the pages are written, mend each."""
    if error is not None or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        if "_static" not in path.parts:
            text = path.read_text("utf-8")
            if (mended := mend(text)) != text:
                path.write_text(mended, "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the step."""
    app.connect("build-finished", mend_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
