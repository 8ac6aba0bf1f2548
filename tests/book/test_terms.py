"""First mentions lead to the glossary: the right words, once, not in code or titles, the longest term first."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
from kvedu_terms import EVERYDAY, mention, terms_of  # noqa: E402
from small_book import build, contents, write  # noqa: E402

TERMS = terms_of((ROOT / "book" / "glossary.md").read_text("utf-8"))


def test_the_glossary_is_read() -> None:
    assert {"KV cache", "block table", "prefill"} <= set(TERMS) and len(TERMS) > 70
    assert EVERYDAY <= set(TERMS), "a word that only an author can tell, and that is no term"


@pytest.mark.parametrize(
    ("term", "text", "found"),
    [
        ("block table", "Two block tables are", "block tables"), ("block table", "the Block-table of", "Block-table"),
        ("memory-bound", "is memory bound.", "memory bound"), ("prefill", "Prefill is", "Prefill"),
        ("prefill", "chunked-prefill", None), ("SLO", "slo", None), ("SLO", "both SLOs.", "SLOs"), ("fork", "forklift", None),
        ("RoPE", "rope", None), ("batch", "two batches", "batches"),
    ],
)  # fmt: skip
def test_a_mention(term: str, text: str, found: str | None) -> None:
    match = mention(term).search(text)
    assert (match and match[0]) == found


def test_first_mentions_become_links(book: Path) -> None:
    """Once each, where it first stands in prose; an author's own later link stays; code and titles stay as they are."""
    (book / "book" / "glossary.md").write_text(
        "# Glossary\n\n```{glossary}\nattention\n  A.\n\npaged attention\n  B.\n\npage\n  C.\n\nprefill\n  D.\n```\n"
    )
    prose = (
        "`prefill()` comes first. **Prefill** fills, prefill ends.\n\nPaged attention on this page. Then attention "
        "and {term}`attention`."
    )
    write(book, "01-x", "About prefill", prose=prose)
    contents(book, "01-x", "glossary")
    status, said = build(book)
    assert status == 0, said
    page = (book / "_build" / "html" / "book" / "01-x.html").read_text("utf-8")
    assert page.count("#term-prefill") == 1 and ">Prefill</span></a></strong> fills" in page
    assert page.count("#term-paged-attention") == 1 and page.count("#term-page\"") == 0
    assert page.count("#term-attention") == 2, "the first mention, and the author's"
