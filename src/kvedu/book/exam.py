"""A mixed exam: the check-yourself questions of all chapters, and a draw from them that a seed repeats."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvedu.book.questions import Question

QUESTIONS = 30


@dataclass(frozen=True)
class Item:
    """A question and its place: chapter and number. ``before`` is the question that it follows on, if it does."""

    chapter: int
    number: int
    question: Question
    before: str = ""

    @property
    def ask(self) -> str:
        """What is asked, complete by itself."""
        return f"({self.before}) {self.question.ask}" if self.before else self.question.ask

    @property
    def name(self) -> str:
        """``ch01.q2``."""
        return f"ch{self.chapter:02}.q{self.number}"


def read_items(folder: Path) -> list[Item]:
    """Every question of every chapter's file ``NN.py`` in ``folder``, in order."""
    items = []
    for path in sorted(folder.glob("[0-9][0-9].py")):
        spec = importlib.util.spec_from_file_location(f"questions_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        last = ""
        for number, question in enumerate(module.QUESTIONS, 1):
            follows = question.ask.startswith("And ")
            items.append(Item(int(path.stem), number, question, last if follows else ""))
            last = last if follows else question.ask
    return items


def draw(items: Sequence[Item], seed: int, count: int = QUESTIONS) -> list[Item]:
    """``count`` questions (all, where there are fewer), as evenly from the chapters as they allow, in random order."""
    chance = random.Random(seed)
    waiting = {chapter: [item for item in items if item.chapter == chapter] for chapter in {item.chapter for item in items}}
    for piles in waiting.values():
        chance.shuffle(piles)
    drawn: list[Item] = []
    while len(drawn) < min(count, len(items)):
        chapters = [chapter for chapter, pile in waiting.items() if pile]
        chance.shuffle(chapters)
        drawn += [waiting[chapter].pop() for chapter in chapters][: count - len(drawn)]
    chance.shuffle(drawn)
    return drawn
