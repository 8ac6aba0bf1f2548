"""Check-yourself questions in a browser: right, wrong, in order, kept, exported, forgotten; by keyboard."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvedu.book.questions import Choice, Number, Option, Order

from .axe import serious_findings

BOOK = Path(__file__).resolve().parents[2] / "book"
sys.path.insert(0, str(BOOK / "_ext"))
from kvedu_questions import page_html  # noqa: E402

pytestmark = pytest.mark.browser
QUESTIONS = [
    Choice("Which?", [Option("`a`", "Because a.", True), Option("b", "Not b, since b."), Option("c", "Not c.")]),
    Number("How many?", 1500, "bytes", "It is 3 times 500.", 1500, tolerance=0.01, slips={3000: "Twice: `K` and `V` counted again."}, chapter=1),
    Order("In which order?", ["first", "second", "third"], "One after the other."),
]  # fmt: skip


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """A page with three questions, from the disk."""
    css, script = ((BOOK / "_static" / name).read_text("utf-8") for name in ("kvedu.css", "questions.js"))
    theme = ":root {--pst-color-border: #999; --pst-color-surface: #f4f4f4; --pst-color-text-muted: #555; --pst-color-primary: #05a; --pst-color-success: #165; --pst-color-danger: #a12}"
    (tmp_path / "page.html").write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Questions</title><style>{theme}{css}</style>'
        f"<main><h1>Questions</h1>{page_html(2, QUESTIONS)}</main><script>{script}</script></html>"
    )
    context = browser.new_context(accept_downloads=True)
    tab = context.new_page()
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto((tmp_path / "page.html").as_uri())
    yield tab
    context.close()
    assert not faults, faults


def verdict(page: Any, number: int) -> Any:
    return page.locator(f"[id='ch02.q{number}'] .kvq-verdict")


def check(page: Any, number: int) -> None:
    page.locator(f"[id='ch02.q{number}'] .kvq-check").click()


def test_a_choice(page: Any) -> None:
    """Every wrong option is answered with its own reason."""
    check(page, 1)
    assert "Answer first" in verdict(page, 1).text_content()
    page.get_by_label("b", exact=True).check()
    check(page, 1)
    assert verdict(page, 1).text_content() == "Not yet. Not b, since b."
    for _ in range(2):  # by the arrows, wherever it stands
        if not page.get_by_label("a", exact=True).is_checked():
            page.keyboard.press("Tab")
            page.locator("[id='ch02.q1'] input:checked").press("ArrowDown")
    check(page, 1)
    assert verdict(page, 1).text_content() == "Right. Because a."


def test_a_number(page: Any) -> None:
    """By keyboard: a slip has its words, the edge of the tolerance is inside, just past it is not, text is asked again."""
    field = page.get_by_label("Your answer in bytes")
    for text, sign in (
        ("3,000", "Twice: K and V counted again."), ("many", "Write a number"), ("1515", "Right. It is 3 times 500."),
        ("1516", "Not yet. Too much"), ("2", "wanted in bytes"), ("1485", "Right."),
    ):  # fmt: skip
        field.fill(text)
        field.press("Enter")
        assert sign in verdict(page, 2).text_content(), text
    assert page.locator("[id='ch02.q2'] legend").text_content().startswith("From chapter 1.")


def test_an_order(page: Any) -> None:
    """Moved by buttons that keep the focus, until it is right."""
    check(page, 3)
    assert "Not yet." in verdict(page, 3).text_content()
    for text, place in (("first", 0), ("second", 1)):
        while page.locator(".kvq-order li span").all_text_contents().index(text) > place:
            button = page.get_by_role("button", name=f"Move up: {text}")
            button.focus()
            page.keyboard.press("Enter")
            assert text in page.evaluate("document.activeElement.getAttribute('aria-label')")
    check(page, 3)
    assert verdict(page, 3).text_content() == "Right. One after the other."


def test_answers_are_kept_exported_and_forgotten(page: Any) -> None:
    """In this browser only: they are there after a reload, come as a file, and go when asked."""
    page.get_by_label("a", exact=True).check()
    check(page, 1)
    page.get_by_label("Your answer in bytes").fill("9")
    check(page, 2)
    assert page.locator(".kvq-progress").text_content() == "1 of 3 answered here."
    page.reload()
    assert page.get_by_label("a", exact=True).is_checked() and "Right." in verdict(page, 1).text_content()
    assert page.get_by_label("Your answer in bytes").input_value() == "9" and "Not yet." in verdict(page, 2).text_content()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save my answers as a file").click()
    saved = json.loads(Path(download.value.path()).read_text())
    assert {key: entry["right"] for key, entry in saved.items()} == {"ch02.q1": True, "ch02.q2": False}
    page.get_by_role("button", name="Start over").click()
    assert page.locator(".kvq-progress").text_content() == "0 of 3 answered here."
    page.reload()
    assert not page.get_by_label("a", exact=True).is_checked()


def test_showing_is_not_answering(page: Any) -> None:
    for number in (1, 2, 3):
        page.locator(f"[id='ch02.q{number}'] .kvq-show").click()
        assert verdict(page, number).text_content().startswith(("Because a", "It is 3", "One after"))
    assert page.get_by_label("Your answer in bytes").input_value() == "1,500"
    assert page.locator(".kvq-progress").text_content() == "0 of 3 answered here."


def test_a_browser_that_keeps_nothing(page: Any) -> None:
    """Where localStorage is refused the questions work all the same."""
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('refused') }})")
    page.reload()
    page.get_by_label("a", exact=True).check()
    check(page, 1)
    assert page.locator(".kvq-progress").text_content() == "1 of 3 answered here."


def test_screen_readers(page: Any) -> None:
    assert not (found := serious_findings(page)), found
    for number in (1, 2, 3):
        check(page, number)
    assert not (found := serious_findings(page)), found
