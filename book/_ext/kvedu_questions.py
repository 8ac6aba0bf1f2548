"""Sphinx side of the check-yourself questions: ``{questions} questions/01.py`` and the mixed ``{exam} questions``.

The page holds the questions with folded answers, for readers without scripts, and the data from which
``_static/questions.js`` makes them answerable.
"""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from kvedu.book.exam import QUESTIONS, Item, draw, read_items
from kvedu.book.questions import Question, mark, page_data
from kvedu.errors import KveduError


class Questions(SphinxDirective):
    """``{questions} FILE``: the questions of a file beside the chapter."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        file = Path(self.env.doc2path(self.env.docname)).parent / self.arguments[0]
        self.env.note_dependency(str(file))
        try:
            questions = load(file)
        except (KveduError, OSError, AttributeError) as error:
            raise self.error(f"questions {self.arguments[0]}: {error}") from None
        alive = self.env.app.builder.name != "epub"
        return [nodes.raw("", page_html(int(file.stem[:2]), questions, alive=alive), format="html", kvquestions=True)]


class Exam(SphinxDirective):
    """``{exam} FOLDER``: a draw from the questions of all chapters but this one; ``:seed:`` repeats it, ``:count:`` limits it."""

    required_arguments = 1
    option_spec = {"seed": int, "count": int}

    def run(self) -> list[nodes.Node]:
        here = Path(self.env.doc2path(self.env.docname))
        folder = here.parent / self.arguments[0]
        for file in folder.glob("[0-9][0-9].py"):
            self.env.note_dependency(str(file))
        seed = self.options.get("seed", 1)
        items = [item for item in read_items(folder) if f"{item.chapter:02}" != here.name[:2]]
        asked = elsewhere(draw(items, seed, self.options.get("count", QUESTIONS)))
        alive = self.env.app.builder.name != "epub"
        return [nodes.raw("", page_html(f"exam{seed}", asked, alive=alive), format="html", kvquestions=True)]


def elsewhere(items: list[Item]) -> list[Question]:
    """Questions asked off their page: complete, each with the chapter that it is of, its own where it names one."""
    return [replace(item.question, ask=item.ask, chapter=item.question.chapter or item.chapter) for item in items]


def load(file: Path) -> list[Question]:
    """The questions of a file."""
    spec = importlib.util.spec_from_file_location(f"questions_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.QUESTIONS)


def page_html(place: int | str, questions: list[Question], *, alive: bool = True) -> str:
    """Questions and folded answers, and (unless nothing will run it) the data."""
    items = []
    for question in questions:
        earlier = f"<em>From chapter {question.chapter}.</em> " if question.chapter else ""
        options = [mark(option.text) for option in getattr(question, "shown", ())]
        listed = "".join(f"<li>{text}</li>" for text in options)
        items.append(
            f"<li><p>{earlier}{mark(question.ask)}</p>{f'<ul>{listed}</ul>' if listed else ''}"
            f"<details><summary>Answer</summary><p>{mark(question.answer_text)}</p></details></li>"
        )
    data = json.dumps(page_data(place, questions), separators=(",", ":")).replace("<", "\\u003c")
    script = f'<script type="application/json" class="kvq-data">{data}</script>' if alive else ""
    attribute = f' data-kvquestions="{place}"' if alive else ""
    return f'<div class="kvq"{attribute}><ol class="kvq-plain">{"".join(items)}</ol>{script}</div>'


def add_script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the script on pages that ask."""
    if doctree is not None and app.builder.name != "epub" and any(n.get("kvquestions") for n in doctree.findall(nodes.raw)):
        app.add_js_file("questions.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("questions", Questions)
    app.add_directive("exam", Exam)
    app.connect("html-page-context", add_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
