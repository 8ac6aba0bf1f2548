"""No page shows the marks of its source: backquotes, dollar signs around a formula, double colons, stars around a word."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from .conftest import built_pages

pytestmark = pytest.mark.browser
PAGES = sorted(str(path.relative_to(built_pages())) for folder in ("book", "labs") for path in (built_pages() / folder).rglob("*.html"))
MARKS = re.compile(r"`|\$[^\s$][^$\n]{0,80}[^\s$]\$|\{(?:doc|term|cite|verdict|glue:\w+)\}|(?<![\w*])\*\*?[a-z][^*\n]{0,60}[a-z]\*\*?(?![\w*])")
VERBATIM = {"pre", "code", "script", "style", "svg", "textarea", "kbd", "mjx-container", "title"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Prose(HTMLParser):
    """The texts of a page that are neither code nor a formula."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: list[bool] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            verbatim = tag in VERBATIM or "math" in (dict(attrs).get("class") or "").split()
            self.hidden.append(verbatim or bool(self.hidden and self.hidden[-1]))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and self.hidden:
            self.hidden.pop()

    def handle_data(self, data: str) -> None:
        if data.strip() and not (self.hidden and self.hidden[-1]):
            self.texts.append(data)


def shown_marks(html: str) -> list[str]:
    """What of the source's marks a reader sees."""
    prose = Prose()
    prose.feed(html)
    return [f"…{text[max(0, found.start() - 40) : found.end() + 40]}…" for text in prose.texts for found in MARKS.finditer(text)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_no_marks_of_its_source(page: str, pages: Path) -> None:
    marks = shown_marks((pages / page).read_text("utf-8"))
    assert not marks, "\n".join(marks[:5])


def test_marks_are_seen() -> None:
    for text in ("run `make gpu`", "needs $O(n^2)$ memory", "a key *and* a value", "see {doc}`x`"):
        assert shown_marks(f"<p>Say: {text}.</p>"), text
        assert not shown_marks(f"<p>Say: <code>{text}</code>, <br>and <span class='math notranslate'>{text}</span></p>")
    assert not shown_marks("<p>2**bits - 1, 3 * 4 * 5, $5 or $6, K * G</p>")
