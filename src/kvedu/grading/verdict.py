"""A verdict on one answer: what came, what was wanted, which mistake it looks like; as text and as a small box."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Verdict:
    """What a check found. ``mistake`` is set where the answer equals a known wrong one."""

    name: str
    passed: bool
    sentence: str
    case: str = ""
    came: str = ""
    wanted: str = ""
    mistake: bool = False
    written: bool = True
    """False where the exercise was not begun."""
    hint: str = ""
    read: str = ""

    @property
    def head(self) -> str:
        """The first line: the exercise's name and the outcome."""
        return f"{self.name}: {'passed' if self.passed else 'not yet' if self.written else 'not written yet'}"

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of every further line; the label may be empty."""
        looks = "This looks like this mistake" if self.mistake else "Checked" if self.passed else ""
        rows = [("Where", self.case), ("Came", self.came), ("Wanted", self.wanted), (looks, self.sentence)]
        rows += [("Hint", self.hint), ("Read", self.read)]
        return [(label, text) for label, text in rows if text]

    def __str__(self) -> str:
        return "\n".join([self.head, *(f"  {label + ': ' if label else ''}{text}" for label, text in self.rows())])

    def _repr_html_(self) -> str:
        color = "#2e7d32" if self.passed else "#b26a00"
        rows = "".join(
            f"<div>{f'<b>{escape(label)}:</b> ' if label else ''}{marked(text)}</div>" for label, text in self.rows()
        )
        return (
            f'<div role="status" style="border:1px solid {color};border-left-width:6px;border-radius:4px;'
            f'padding:.5em .8em;margin:.3em 0;max-width:60em;line-height:1.5">'
            f"<div><b>{escape(self.head)}</b></div>{rows}</div>"
        )


def marked(text: str) -> str:
    """A sentence as HTML, with code where it has backquotes and stress where it has stars around words.

    >>> marked("write `x < 1` *here*, not 2**x")
    'write <code>x &lt; 1</code> <em>here</em>, not 2**x'
    """
    parts = re.split(r"`([^`\n]+)`", escape(text))
    stressed = (re.sub(r"(?<![\w*])\*([^\s*](?:[^*\n]*[^\s*])?)\*(?![\w*])", r"<em>\1</em>", part) for part in parts[::2])
    return "".join(text + (f"<code>{code}</code>" if code else "") for text, code in zip(stressed, [*parts[1::2], ""]))


class NotYet(AssertionError):
    """An answer that did not pass. Notebooks show one line of it: the verdict stands above."""

    def __init__(self, verdict: Verdict, *, shown: bool = False) -> None:
        super().__init__(verdict.head if shown else str(verdict))
        self.verdict = verdict

    def _render_traceback_(self) -> list[str]:
        return [self.verdict.head]
