"""The book's sources: whole contents, honest titles, headers that execute, all claims of a chapter examined."""

import re
from pathlib import Path

import pytest
from book_execute import toc_pages
from pybtex.database import parse_file

from kvedu.book.claims import all_claims
from kvedu.book.study import STATEMENTS

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
PAGES = sorted(BOOK.glob("*.md"))
FOLLOWING = {statement.claim for statement in STATEMENTS}
"""Claims whose verdict follows from others' (``kvedu.book.study``): no cell judges them."""
CHAPTERS = [path for path in PAGES if re.match(r"\d\d-", path.name)]


def test_every_page_is_in_the_contents_once() -> None:
    listed = toc_pages(ROOT)
    assert len(listed) == len(set(listed))
    assert {path for path in listed if path.parent == BOOK} == set(PAGES)
    named = re.findall(r"^[^#\n]*(?:file|root): *(\S+)", (ROOT / "_toc.yml").read_text(), re.MULTILINE)
    assert len(named) == len(listed), "the contents name a page that does not exist"


def test_chapters_stand_in_order() -> None:
    listed = [path for path in toc_pages(ROOT) if path in CHAPTERS]
    assert listed == CHAPTERS


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter(path: Path) -> None:
    """Its title carries the number of its name, it can be executed, and it judges every claim that is its own."""
    text = path.read_text("utf-8")
    number = int(path.name[:2])
    assert re.search(rf"^# {number} · \S", text, re.MULTILINE), "the title carries the chapter's number"
    header = text.split("---")[1]
    assert "jupytext:" in header and "kernelspec:" in header
    code = "\n".join(re.findall(r"```\{code-cell\}.*?\n(.*?)```", text, re.DOTALL))
    missing = [
        claim.id
        for claim in all_claims()
        if claim.chapter == number and claim.id not in FOLLOWING and not re.search(rf"""["']{re.escape(claim.id)}["']""", code)
    ]
    assert not missing, f"no cell of chapter {number} judges {', '.join(missing)}"


def test_the_preface_says_what_is_missing() -> None:
    """Chapters without a lab, and the chapter that is not written, as long as they are."""
    text = " ".join((BOOK / "intro.md").read_text("utf-8").split())
    numbers = [int(path.name[:2]) for path in CHAPTERS]
    without = [n for n in numbers if not list((ROOT / "labs").glob(f"{n:02d}-*.ipynb"))]
    assert f"A lab stands beside each chapter but {', '.join(map(str, without[:-1]))} and {without[-1]}." in text
    missing = sorted(set(range(1, max(numbers))) - set(numbers))
    assert re.findall(r"Chapter (\d+), on [^.]*, is not written yet", text) == [str(n) for n in missing]


@pytest.mark.parametrize("path", [*PAGES, *sorted((BOOK / "questions").glob("*.py")), ROOT / "src/kvedu/book/claims.json"], ids=lambda path: path.name)
def test_percent_stands_by_its_number(path: Path) -> None:
    """67.8%, not 67.8 %: one style. (In code, % with blanks is the remainder; a stored row's keys are what they are.)"""
    spaced = [line for line in path.read_text("utf-8").splitlines() if re.search(r"[0-9}] %(?! ?[\w(])", line)]
    assert not [line for line in spaced if not re.search(r"""\d %["']?\]|\{share\} %\"""", line)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page_loads_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"""(?:src|@import|from)\s*=?\s*["'(]*https?://""", text)
    assert not re.search(r"!\[[^\]]*\]\(https?://", text)


def test_glossary_is_sorted_and_rich() -> None:
    block = re.search(r"```\{glossary\}\n(.*?)```", (BOOK / "glossary.md").read_text("utf-8"), re.DOTALL)
    assert block is not None
    terms = re.findall(r"^(?! )(\S.*)$", block[1], re.MULTILINE)
    assert len(terms) >= 50 and terms == sorted(terms, key=str.lower)


def test_references_hold_what_the_plan_names() -> None:
    entries = parse_file(str(BOOK / "references.bib")).entries
    sources = {"pope2022", "kwon2023", "yu2022", "leviathan2023", "ainslie2023", "shazeer2019", "zheng2024"}
    figures = {
        "agrawal2024",
        "li2025",
        "vllm2024",
        "liu2024",
        "xiao2024",
        "deepseek2024",
        "gptfast2023",
        "shah2024",
        "h200",
    }
    assert sources | figures <= set(entries)
    labels: dict[tuple[str, int, str], str] = {}
    for key, entry in entries.items():
        assert {"title", "year"} <= set(entry.fields) and entry.persons["author"], key
        assert ("url" in entry.fields) != ("eprint" in entry.fields), f"{key}: one link, the arXiv number where there is one"
        assert not re.search(r"arxiv\.org|\$", "".join(entry.fields.values())), f"{key}: arXiv as eprint, and no TeX formula"
        assert not any(entry.fields["year"] in entry.fields.get(field, "") for field in ("note", "howpublished")), f"{key}: the year twice"
        people = entry.persons["author"]
        label = (str(people[0]), min(len(people), 3), entry.fields["year"])  # as a citation shows it
        assert label not in labels, f"{key} and {labels[label]}: one label for two works; write 2024a and 2024b"
        labels[label] = key
        if arxiv := re.fullmatch(r"(\d\d)\d\d\.\d{5}", entry.fields.get("eprint", "")):
            assert 0 <= int(entry.fields["year"][:4]) - (2000 + int(arxiv[1])) <= 1, f"{key}: year and arXiv number disagree"
