"""Figures are numbered within their chapter, in the order in which they stand, and references say the same."""

import re
from pathlib import Path

from small_book import build, contents, write

FIGURE = "```{{figure}} x.svg\n:name: fig-{0}\nFigure {0}.\n```\n"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'


def test_numbers_follow_the_chapter(book: Path) -> None:
    (book / "book" / "x.svg").write_text(SVG)
    write(book, "02-two", "2 · Two", prose=FIGURE.format("a") + "\n" + FIGURE.format("b"))
    write(book, "07-seven", "7 · Seven", prose=FIGURE.format("c") + "\nSee {numref}`fig-b` and {numref}`fig-c`.")
    contents(book, "02-two", "07-seven")
    status, said = build(book)
    assert status == 0, said
    pages = {name: (book / "_build" / "html" / "book" / f"{name}.html").read_text("utf-8") for name in ("02-two", "07-seven")}
    found = {name: re.findall(r'caption-number">(Fig\. [\d.]+) <', page) for name, page in pages.items()}
    assert found == {"02-two": ["Fig. 2.1", "Fig. 2.2"], "07-seven": ["Fig. 7.1"]}
    assert ">Fig. 2.2<" in pages["07-seven"] and ">Fig. 7.1<" in pages["07-seven"]
