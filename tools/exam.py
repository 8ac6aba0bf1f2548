"""A mixed exam and flashcards from the questions of all chapters: ``python tools/exam.py [--seed 1] [--out FOLDER]``.

Writes ``exam-SEED.md`` (the paper), ``exam-SEED-answers.md`` and ``flashcards.apkg`` for Anki. The same seed gives the
same paper. A question keeps its card over time, so that a learner who imports a newer deck goes on where they were.
"""

from __future__ import annotations

import argparse
import random
import sys
from hashlib import sha256
from pathlib import Path

import genanki

from kvedu.book.exam import QUESTIONS, Item, draw, read_items
from kvedu.book.questions import Choice, Number, Order, Question, mark

ROOT = Path(__file__).resolve().parents[1]
LETTERS = "abcdefgh"
MODEL = genanki.Model(
    1_607_392_319,
    "kvedu question",
    fields=[{"name": "Question"}, {"name": "Answer"}],
    templates=[{"name": "Card", "qfmt": "{{Question}}", "afmt": '{{FrontSide}}<hr id="answer">{{Answer}}'}],
    css=".card { font-family: sans-serif; font-size: 18px; text-align: left; max-width: 40em; margin: auto; }",
)
DECK = 2_059_400_110


def all_items(folder: Path = ROOT / "book" / "questions") -> list[Item]:
    """Every question of every chapter, in order."""
    return read_items(folder)


def paper(drawn: list[Item], seed: int) -> tuple[str, str]:
    """The exam and its answers, as Markdown."""
    chance = random.Random(seed)
    asked, told = [f"# Exam {seed}\n\n{len(drawn)} questions.\n"], [f"# Exam {seed}, answers\n"]
    for place, item in enumerate(drawn, 1):
        lines, answer = _posed(item.question, chance)
        asked.append("\n".join([f"**{place}.** {item.ask}", "", *lines]) + "\n")
        told.append(f"**{place}.** {answer} *({item.name})*\n")
    return "\n".join(asked), "\n".join(told)


def _posed(question: Question, chance: random.Random) -> tuple[list[str], str]:
    """The lines under a question, and its answer in their terms."""
    match question:
        case Choice():
            options = chance.sample(list(question.options), len(question.options))
            right = next(i for i, option in enumerate(options) if option.right)
            return [f"- ({LETTERS[i]}) {option.text}" for i, option in enumerate(options)], f"({LETTERS[right]}) {question.answer_text}"
        case Order():
            steps = chance.sample(list(question.steps), len(question.steps))
            order = ", ".join(LETTERS[steps.index(step)] for step in question.steps)
            return [f"- ({LETTERS[i]}) {step}" for i, step in enumerate(steps)], f"{order}. {question.why}"
        case Number():
            return [f"________ {question.unit}"], question.answer_text


def deck(items: list[Item]) -> genanki.Deck:
    """One card for each question; its id depends on what is asked, not on where it stands."""
    made = genanki.Deck(DECK, "kvedu: the KV cache and LLM inference")
    for item in items:
        options = [f"<li>{mark(option.text)}</li>" for option in getattr(item.question, "shown", ())]
        options += [f"<li>{mark(step)}</li>" for step in sorted(getattr(item.question, "steps", ()))]
        front = mark(item.ask) + (f"<ul>{''.join(options)}</ul>" if options else "")
        guid = sha256(item.ask.encode()).hexdigest()[:16]
        tags = [f"chapter-{item.chapter:02}", type(item.question).__name__.lower()]
        made.add_note(genanki.Note(model=MODEL, fields=[front, mark(item.question.answer_text)], guid=guid, tags=tags))
    return made


def main() -> int:
    """Write the paper, its answers and the deck."""
    parser = argparse.ArgumentParser(description="A mixed exam and flashcards from the chapters' questions.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=QUESTIONS)
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / "instructor" / "exam")
    options = parser.parse_args()
    write(options.out, options.seed, options.count)
    print(f"in {options.out}")
    return 0


def write(out: Path, seed: int, count: int = QUESTIONS) -> None:
    """The three files."""
    out.mkdir(parents=True, exist_ok=True)
    items = all_items()
    asked, told = paper(draw(items, seed, count), seed)
    (out / f"exam-{seed}.md").write_text(asked, "utf-8")
    (out / f"exam-{seed}-answers.md").write_text(told, "utf-8")
    genanki.Package(deck(items)).write_to_file(out / "flashcards.apkg")


if __name__ == "__main__":
    sys.exit(main())
