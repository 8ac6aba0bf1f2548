"""The mixed exam and the flashcards: drawn from all chapters, the same for the same seed, with answers that fit."""

import re
import sqlite3
import sys
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from exam import QUESTIONS, Item, all_items, deck, draw, paper, write

from kvedu.book.questions import Choice, Number, Option, Order, page_data

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))
from kvedu_questions import page_html  # noqa: E402

ITEMS = all_items()


def test_there_are_questions_of_every_chapter_that_has_a_file() -> None:
    files = {int(path.stem) for path in (Path(__file__).resolve().parents[2] / "book" / "questions").glob("[0-9][0-9].py")}
    assert {item.chapter for item in ITEMS} == files and len({item.name for item in ITEMS}) == len(ITEMS)


@pytest.mark.parametrize("seed", range(5))
def test_an_exam_is_mixed_and_repeatable(seed: int) -> None:
    drawn = draw(ITEMS, seed)
    assert drawn == draw(ITEMS, seed) and len(set(map(id, drawn))) == len(drawn) == min(QUESTIONS, len(ITEMS))
    few = draw(ITEMS, seed, 8)
    counts = Counter(item.chapter for item in few)
    assert len(few) == 8 and max(counts.values()) - min([*counts.values(), 8]) <= 1
    assert len({tuple(item.name for item in draw(ITEMS, other, 8)) for other in range(5)}) > 1


SMALL = [
    Item(1, 1, Choice("Which?", [Option("wrong one", "no"), Option("right one", "yes", True), Option("other", "no")])),
    Item(1, 2, Order("In which order?", ["first", "second", "third"], "because")),
    Item(2, 1, Number("How many?", 1234, "bytes", "so", by_hand=1234)),
]


@pytest.mark.parametrize("seed", range(6))
def test_answers_fit_the_paper(seed: int) -> None:
    asked, told = paper(SMALL, seed)
    right = re.search(r"\*\*1\.\*\* \((\w)\) right one yes", told)[1]
    assert f"- ({right}) right one" in asked
    order = re.search(r"\*\*2\.\*\* (\w), (\w), (\w)\. because", told).groups()
    assert [re.search(rf"- \({letter}\) (first|second|third)", asked)[1] for letter in order] == ["first", "second", "third"]
    assert "________ bytes" in asked and "1,234 bytes. so" in told and "1,234" not in asked
    assert len({paper(SMALL, other)[0].split("\n", 1)[1] for other in range(6)}) > 1


def test_cards_keep_their_ids_when_questions_move() -> None:
    moved = [Item(item.chapter, item.number + 1, item.question) for item in reversed(SMALL)]
    assert {note.guid for note in deck(SMALL).notes} == {note.guid for note in deck(moved).notes}
    assert len({note.guid for note in deck(ITEMS).notes}) == len(ITEMS)


def test_anki_can_read_the_deck(tmp_path: Path) -> None:
    """The package is a zip with a database; every question is a note with a front and a back."""
    write(tmp_path, seed=3)
    with zipfile.ZipFile(tmp_path / "flashcards.apkg") as file:
        file.extract("collection.anki2", tmp_path)
    with sqlite3.connect(tmp_path / "collection.anki2") as database:
        notes = database.execute("select flds from notes").fetchall()
        assert len(notes) == len(ITEMS) == database.execute("select count(*) from cards").fetchone()[0]
    assert all(len(fields.split("\x1f")) == 2 and all(fields.split("\x1f")) for (fields,) in notes)
    assert (tmp_path / "exam-3.md").is_file() and (tmp_path / "exam-3-answers.md").is_file()


def test_a_follow_up_brings_its_question_along() -> None:
    (item,) = [item for item in ITEMS if item.question.ask == "And without a cache?"]
    assert item.ask.startswith("(A prompt of 500 tokens") and item.ask.endswith("And without a cache?")
    assert not [item.name for item in ITEMS if item.ask.startswith("And ")]


def test_the_page_asks_each_drawn_question_under_a_name_of_its_own() -> None:
    """Answers to the exam in the book are kept apart from those at the chapters' ends, and say where to read."""
    asked = [replace(item.question, ask=item.ask, chapter=item.chapter) for item in draw(ITEMS, 1)]
    data = page_data("exam1", asked)
    assert [one["id"] for one in data] == [f"exam1.q{at}" for at in range(1, len(asked) + 1)]
    assert all(one["chapter"] for one in data) and not {one["id"] for one in data} & {item.name for item in ITEMS}
    assert 'data-kvquestions="exam1"' in page_html("exam1", asked)
