"""Citations are counted over the chapters' sources."""

from pathlib import Path

from pybtex.database import parse_file

from kvedu.book.cited import SEVEN, carried, cited

BOOK = Path(__file__).resolve().parents[2] / "book"


def test_citations_are_counted_by_chapter(tmp_path: Path) -> None:
    (tmp_path / "02-b.md").write_text("See {cite}`pope2022, other` and {cite:p}`kwon2023`.")
    (tmp_path / "03-c.md").write_text("See {cite}`other`.")
    (tmp_path / "04-d.md").write_text("Nothing.")
    (tmp_path / "intro.md").write_text("{cite}`kwon2023`")
    found = cited(tmp_path)
    assert found == {2: {"pope2022", "other", "kwon2023"}, 3: {"other"}, 4: set()}
    assert carried(found) == ([2], [3])


def test_the_seven_are_in_the_references_and_cited() -> None:
    assert set(SEVEN) <= set(parse_file(str(BOOK / "references.bib")).entries)
    found = cited(BOOK)
    assert all(any(work in keys for chapter, keys in found.items() if chapter != 10) for work in SEVEN)
    assert set(range(1, 9)) <= set(carried(found)[0]), "what the verdict on A11 says of the first part"
