"""A figure as a still picture, and as the HTML that becomes alive in a page."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from typing import Any

from kvedu.viz.node import pictures

WIDTH = 680
"""Pixels across which a still picture is drawn: the text column of a page."""


@dataclass(frozen=True)
class Still:
    """One state of a figure: picture, the sentence that reads it out, numbers as (name, value), and the state."""

    svg: str
    say: str
    readout: tuple[tuple[str, str], ...]
    state: dict[str, Any]


def still(name: str, data: dict[str, Any], state: dict[str, Any] | None = None, width: int = WIDTH) -> Still:
    """A figure's picture in one state (its start, unless ``state`` says otherwise).

    Needs node; raises ``KveduError`` where there is none, or with the script's own words where it fails.
    """
    drawn = pictures(name, data, [state or {}], width)[0]
    readout = tuple((str(term), str(value)) for term, value, *_ in drawn["readout"])
    return Still(drawn["svg"], drawn["say"], readout, drawn["state"])


def page_html(name: str, data: dict[str, Any], *, alive: bool = True) -> str:
    """A figure for a static page: the still picture, which ``runtime/page.js`` makes alive, and the data.

    Without ``alive`` the data is left out: for readers that run no scripts.
    """
    drawn = still(name, data)
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    label = html.escape(data.get("title", name), quote=True)
    asked = data.get("predict")
    question = f'<p class="kvfig-asked">{html.escape(question_and_answer(asked))}</p>' if asked else ""
    script = f'<script type="application/json" class="kvfig-data">{text}</script>' if alive else ""
    place = f' data-kvfig="{name}"' if alive else ""
    return (
        f'<div class="kvfig"{place} role="group" aria-label="{label}">{question}{drawn.svg}'
        f'<p class="kvfig-say">{html.escape(drawn.say)}</p>{script}</div>'
    )


def question_and_answer(asked: dict[str, Any]) -> str:
    """A prediction as one line, for paper: the question, the choices, the answer."""
    right = asked["choices"][asked["answer"]]
    return f"{asked['question']} ({' / '.join(asked['choices'])}) Answer: {right}. {asked.get('because', '')}".strip()
