"""The build of a small book: a failure is named, fails every time and leaves no old pages; good pages are current."""

import re
from pathlib import Path

from small_book import JUDGE, build, contents, no_pages, write


def test_a_good_book_is_current_and_a_broken_one_leaves_nothing(book: Path) -> None:
    """C041: verdicts and text are current, a second run does nothing, and after a failure no old page stays."""
    status, log = build(book)
    assert status == 0, log
    page = (book / "_build/html/book/intro.html").read_text()
    assert (
        "First text." in page and "oldoutput" in page and 'href="#verdict-A1.1a">holds' in page and "ratio 7.25" in page
    )
    ledger = (book / "_build/html/book/claims-ledger.html").read_text()
    assert (
        'href="intro.html#verdict-A1.1a"' in ledger
        and "Of 175 claims 1 hold," in ledger
        and "174 are not examined yet" in ledger
        and "which are not written yet" in ledger
    )
    row = re.search(r"<tr[^>]*>(?:(?!</tr>).)*A1\.1a(?:(?!</tr>).)*</tr>", ledger, re.DOTALL)
    assert row is not None and "ratio 7.25." in row[0] and "commit" not in row[0] and ledger.count("commit abc123") == 1
    assert "1 of 175, −3.8% on 2026\u201101\u201102." in re.sub("<[^>]*>", "", page)

    status, log = build(book)
    assert status == 0 and "up to date" in log

    write(book, "intro", "Start", JUDGE, "print('old' + 'output')", prose="It {verdict}`A1.1a`. Second text.")
    status, log = build(book)
    assert status == 0 and "unchanged" in log, log
    page = (book / "_build/html/book/intro.html").read_text()
    assert "Second text." in page and "oldoutput" in page, "the cached outputs must come back with the new text"

    (book / "library" / "kvedu" / "units.py").open("a").write("\n# a change in the library\n")
    status, log = build(book, "--cell-timeout", "60")
    assert status == 0 and "unchanged" not in log and "up to date" not in log, (
        "the library changed, so every cell runs again"
    )

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
