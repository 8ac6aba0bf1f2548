"""Keep control tokens out of what a user wrote, when a chat is turned into ids.

A chat template writes control tokens (``<|im_end|>``) as plain text between the
messages, and the tokenizer then recognizes them. A message that contains the same
characters would be recognized too: the user could end the turn and speak as the
system. So message texts are marked before rendering, and marked places stay text.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Collection, Iterator, Mapping

from kvedu.errors import RequestError

# Unicode noncharacters: never part of interchanged text, so one of them is free to be the mark.
_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


def mark_controls(value: Any, controls: Collection[str]) -> tuple[Any, str | None]:
    """Put a mark before each control string inside the strings of ``value`` (messages, nested at will).

    Returns the marked copy and the mark, or ``value`` itself and None when no control
    string occurs in it.
    """
    texts = list(_texts(value))
    if not any(control in text for text in texts for control in controls):
        return value, None
    mark = next((mark for mark in _MARKS if not any(mark in text for text in texts)), None)
    if mark is None:
        raise RequestError("the messages use every Unicode noncharacter from U+FDD0 to U+FDEF; leave one out")
    starts = re.compile(f"(?={_any_of(controls)})")
    return _map_texts(value, lambda text: starts.sub(mark, text)), mark


def split_controls(text: str, mark: str, controls: Collection[str]) -> list[tuple[str, bool]]:
    """Cut a rendered text into (piece, is a control token), with every mark taken out."""
    pieces = re.split(f"((?<!{mark})(?:{_any_of(controls)}))", text)
    cut = [(piece.replace(mark, ""), i % 2 == 1) for i, piece in enumerate(pieces)]
    return [(piece, is_control) for piece, is_control in cut if piece]


def _any_of(controls: Collection[str]) -> str:
    return "|".join(re.escape(control) for control in sorted(controls, key=len, reverse=True))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_texts(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_texts(item, change) for item in value]
    return value
