"""The frozen texts that the book measures on, and the hashes that name them.

Seven files, written for this project (CC-BY-4.0) and never edited afterwards:
expository prose, a story, dialogue, Python, JSON and logs, tables, and a recall
set. A stored row names its text by :func:`sha256`, so a number can always be
traced to the bytes that gave it. To change a text, add a file with a new name.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kvedu.errors import KveduError

__all__ = ["RecallItem", "all_text", "names", "read", "recall_items", "sha256"]

_RECALL = "recall"


@dataclass(frozen=True)
class RecallItem:
    """One question whose answer can only be copied from its context.

    ``context`` is the passage; ``cue`` the start of a sentence that stands in it,
    up to the answer; ``answer`` the word or digits that follow; ``depth`` where
    the answer begins, as a fraction of the context's characters: 0 is the
    beginning, 1 the end.
    """

    context: str
    cue: str
    answer: str
    depth: float

    @property
    def prompt(self) -> str:
        """Context, a blank line, the cue: a right continuation is a space and the answer."""
        return f"{self.context}\n\n{self.cue}"


@cache
def _manifest() -> dict[str, dict]:
    text = (files(__name__) / "MANIFEST.json").read_text(encoding="utf-8")
    return {entry["name"]: entry for entry in json.loads(text)["texts"]}


def _bytes(name: str) -> bytes:
    entry = _manifest().get(name)
    if entry is None:
        raise KveduError(f"there is no text {name!r}; the frozen texts are {', '.join(names())}")
    return (files(__name__) / entry["file"]).read_bytes()


def names() -> tuple[str, ...]:
    """Name every frozen text, in the order of the manifest; ``recall`` is the last.

    >>> names()
    ('prose', 'story', 'dialogue', 'code', 'json_logs', 'tables', 'recall')
    """
    return tuple(_manifest())


def read(name: str) -> str:
    r"""Return one text exactly as shipped (UTF-8, lines end in ``\n``).

    ``recall`` comes as its JSON source; use :func:`recall_items` to ask from it.
    Raises KveduError, with the list of names, when there is no such text.

    >>> read("story").splitlines()[0]
    'Seven Minutes'
    """
    return _bytes(name).decode("utf-8")


def sha256(name: str) -> str:
    """Return the SHA-256 (hex) of the bytes shipped, computed from the file, not looked up.

    Raises KveduError, with the list of names, when there is no such text.
    """
    return hashlib.sha256(_bytes(name)).hexdigest()


def all_text() -> str:
    """Join every text but the recall set, in order, a blank line between: about 75 KB."""
    return "\n".join(read(name) for name in names() if name != _RECALL)


def recall_items() -> list[RecallItem]:
    """List the recall set: several questions per passage, at depths from near 0 to near 1.

    >>> item = recall_items()[0]
    >>> item.cue, item.answer
    ('The gate of the old customs house opens with the code', '4817')
    """
    return [
        _item(passage["text"], question["cue"], question["answer"])
        for passage in json.loads(read(_RECALL))["passages"]
        for question in passage["questions"]
    ]


def _item(context: str, cue: str, answer: str) -> RecallItem:
    start = context.index(f"{cue} {answer}") + len(cue) + 1
    return RecallItem(context, cue, answer, start / len(context))
