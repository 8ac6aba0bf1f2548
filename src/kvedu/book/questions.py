"""Check-yourself questions as data: a choice with a reason for every option, a number with its unit, an order of steps.

A chapter's questions are a list ``QUESTIONS`` in ``book/questions/NN.py``. A keyed number is computed with the library;
``by_hand`` is a second way to it, and a test holds the two against each other. In texts, `backquotes` mean code.
"""

from __future__ import annotations

import hashlib
import html
import math
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from kvedu.errors import KveduError


@dataclass(frozen=True)
class Option:
    """One thing to choose, whether it is right, and why (not)."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True)
class Choice:
    """One right option among several. ``chapter`` names an earlier one that the question comes from."""

    ask: str
    options: Sequence[Option]
    chapter: int | None = None

    def __post_init__(self) -> None:
        if sum(option.right for option in self.options) != 1 or len(self.options) < 3:
            raise KveduError(f"a choice has at least 3 options, one of them right: {self.ask!r}")
        if not all(option.why for option in self.options):
            raise KveduError(f"every option says why it is right or wrong: {self.ask!r}")

    @property
    def shown(self) -> list[Option]:
        """The options in the order that a page shows, which does not tell the right one."""
        return sorted(self.options, key=lambda option: hashlib.sha256(option.text.encode()).digest())

    @property
    def key(self) -> dict[str, Any]:
        """What the page needs."""
        options = [{"text": mark(o.text), "why": mark(o.why), "right": o.right} for o in self.shown]
        return {"kind": "choice", "options": options}

    @property
    def answer_text(self) -> str:
        """The answer for a reader without scripts."""
        return next(f"{option.text} {option.why}" for option in self.options if option.right)


@dataclass(frozen=True)
class Number:
    """A number with its unit, right within a relative ``tolerance``. ``slips`` gives wrong numbers their reason."""

    ask: str
    answer: float
    unit: str
    why: str
    by_hand: float
    tolerance: float = 0.0
    slips: Mapping[float, str] = field(default_factory=dict)
    chapter: int | None = None

    def __post_init__(self) -> None:
        if any(self.near(slip) for slip in self.slips):
            raise KveduError(f"a slip lies within the tolerance of the right answer: {self.ask!r}")

    def near(self, given: float) -> bool:
        """Whether a number counts as the answer."""
        return abs(given - self.answer) <= self.tolerance * abs(self.answer) + 1e-9 * abs(self.answer)

    @property
    def key(self) -> dict[str, Any]:
        """What the page needs."""
        slips = [{"value": value, "why": mark(why)} for value, why in self.slips.items()]
        return {"kind": "number", "answer": self.answer, "tolerance": self.tolerance, "unit": self.unit, "why": mark(self.why), "slips": slips}

    @property
    def answer_text(self) -> str:
        """The answer for a reader without scripts."""
        return f"{shown_number(self.answer)} {self.unit}. {self.why}"


@dataclass(frozen=True)
class Order:
    """Steps to be put in order; ``steps`` stand in the right one."""

    ask: str
    steps: Sequence[str]
    why: str
    chapter: int | None = None

    @property
    def key(self) -> dict[str, Any]:
        """What the page needs."""
        return {"kind": "order", "steps": [mark(step) for step in self.steps], "why": mark(self.why)}

    @property
    def answer_text(self) -> str:
        """The answer for a reader without scripts."""
        return "; ".join(f"{at}. {step.rstrip('.')}" for at, step in enumerate(self.steps, 1)) + f". {self.why}"


Question = Choice | Number | Order


def shown_number(answer: float) -> str:
    """Four digits where it is not whole, and never an exponent.

    >>> shown_number(80.4967), shown_number(1.30), shown_number(57344)
    ('80.5', '1.3', '57,344')
    """
    if not answer % 1:
        return f"{answer:,.0f}"
    digits = max(0, 3 - math.floor(math.log10(abs(answer))))
    text = f"{answer:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def mark(text: str) -> str:
    """Plain text as HTML; what stands in backquotes is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def page_data(place: int | str, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """All that a page's script needs, one object a question, each with an id that answers are kept under.

    ``place`` is the chapter's number, or another name (``exam1``) where a page asks questions a second time.
    """
    name = f"ch{place:02}" if isinstance(place, int) else place
    return [
        {"id": f"{name}.q{at}", "ask": mark(question.ask), "chapter": question.chapter} | question.key
        for at, question in enumerate(questions, 1)
    ]
