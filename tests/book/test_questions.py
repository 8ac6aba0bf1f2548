"""Check-yourself questions: keyed numbers are right twice over, every option says why, old chapters come back."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvedu.book.questions import Choice, Number, Option, Order, mark, page_data
from kvedu.errors import KveduError
from kvedu.viz.node import find_node

BOOK = Path(__file__).resolve().parents[2] / "book"
sys.path.insert(0, str(BOOK / "_ext"))
from kvedu_questions import elsewhere, load, page_html  # noqa: E402

from kvedu.book.exam import read_items  # noqa: E402

FILES = sorted((BOOK / "questions").glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_chapters_questions(file: Path) -> None:
    """At least five, of more than one kind; two from earlier chapters; each number equals the one worked out by hand."""
    chapter, questions = int(file.stem), load(file)
    assert len(questions) >= 5 and len({type(question) for question in questions}) >= 2
    earlier = [question.chapter for question in questions if question.chapter is not None]
    assert all(old < chapter for old in earlier)
    assert len(earlier) >= (2 if chapter > 1 else 0)
    for question in questions:
        if isinstance(question, Number):
            assert question.near(question.by_hand), f"{question.ask}: {question.answer} by kvedu, {question.by_hand} by hand"
    asked = list(BOOK.glob(f"{file.stem}-*.md"))
    assert asked and f"{{questions}} questions/{file.name}" in asked[0].read_text("utf-8")


def test_a_question_asked_elsewhere_names_the_chapter_that_it_is_of() -> None:
    """An exam says a question's own chapter where it has one, else that of its page."""
    items = [item for item in read_items(BOOK / "questions") if item.chapter == 6]
    assert [question.chapter for question in elsewhere(items)] == [question.chapter or 6 for question in load(BOOK / "questions" / "06.py")]


def test_orders_are_computed_where_they_are_numbers() -> None:
    """Chapter 3's models by bytes a token, counted here from the texts of the steps."""
    order = next(question for question in load(BOOK / "questions" / "03.py") if isinstance(question, Order))
    sizes = [2 * int(a) * int(b) * int(c) for a, b, c in (re.search(r"(\d+) layers, (\d+) KV heads? of size (\d+)", s).groups() for s in order.steps)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 4


def script(calls: str) -> list:
    """Run the page's own functions in node."""
    code = f"{(BOOK / '_static' / 'questions.js').read_text('utf-8')}\nconst q = kvquestions;\nconsole.log(JSON.stringify({calls}))"
    done = subprocess.run([find_node(), "-"], input=code, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_script_reads_numbers_as_people_write_them() -> None:
    texts = ["1,234", "1 234", " 12.5 ", "1e3", "-3", "", "abc", "12 tokens", "."]
    found = script(f"{json.dumps(texts)}.map((t) => {{ const n = q.parse(t); return Number.isNaN(n) ? null : n; }})")
    assert found == [1234, 1234, 12.5, 1000, -3, None, None, None, None]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_script_judges_as_the_data_says(file: Path) -> None:
    """The keyed answer is right, each slip is wrong with its own words, just outside of the tolerance is wrong."""
    for question in load(file):
        if not isinstance(question, Number):
            continue
        edge = question.answer * (1 + question.tolerance)
        given = [question.answer, edge, edge * 1.002 + 0.4, *question.slips]
        found = script(f"{json.dumps([str(n) for n in given])}.map((t) => q.judgeNumber({json.dumps(question.key)}, t))")
        assert [one["right"] for one in found] == [True, True, *[False] * (1 + len(question.slips))]
        assert [one["words"] for one in found[3:]] == [mark(why) for why in question.slips.values()]


def test_an_order_never_starts_solved() -> None:
    found = script("[2, 3, 4, 5].flatMap((n) => ['a', 'ch01.q4', 'x9'].map((id) => [n, q.shuffled(Array(n).fill(''), id)]))")
    for n, order in found:
        assert sorted(order) == list(range(n)) and order != list(range(n))


def test_mistakes_in_the_data_are_named() -> None:
    options = [Option("a", "x", True), Option("b", "y"), Option("c", "z")]
    with pytest.raises(KveduError, match="one of them right"):
        Choice("?", [*options[1:], Option("d", "w")])
    with pytest.raises(KveduError, match="says why"):
        Choice("?", [*options[:2], Option("c", "")])
    with pytest.raises(KveduError, match="within the tolerance"):
        Number("?", 100, "m", "w", 100, tolerance=0.1, slips={95: "no"})


def test_without_scripts_the_answers_are_there() -> None:
    html = page_html(7, [Number("How `many`?", 1500, "bytes", "A & B.", 1500, chapter=2)])
    assert "<code>many</code>" in html and "1,500 bytes. A &amp; B." in html and "From chapter 2." in html
    assert page_data(7, [Order("?", ["a", "b"], "c")])[0]["id"] == "ch07.q1"


def test_the_place_of_an_option_does_not_tell() -> None:
    """Over all chapters the right option stands in more than one place, and the page and its data agree on it."""
    choices = [question for file in FILES for question in load(file) if isinstance(question, Choice)]
    places = [[option.right for option in choice.shown].index(True) for choice in choices]
    assert len(set(places)) > 1 and max(places.count(place) for place in set(places)) < len(places)
    for choice in choices:
        assert [option["right"] for option in choice.key["options"]] == [option.right for option in choice.shown]
