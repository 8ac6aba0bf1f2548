"""Text from token ids, one id at a time, as a server sends it.

Three things go wrong when each id is decoded alone: a character of several bytes
is cut, a leading space is lost, and the first half of a stop string is sent before
the second half shows what it was. ``Detokenizer`` holds back exactly what is not
certain yet, and nothing more.
"""

from __future__ import annotations

from typing import Sequence

from kvedu.errors import RequestError
from kvedu.model.stop_strings import StopStrings
from kvedu.model.tokenizer import Tokenizer


class Detokenizer:
    """A stream of ids in, a stream of text out.

    The pushed texts and the finish, joined, equal ``tokenizer.decode(ids, skip_special=...)``,
    cut before the first stop string if there is one. ``stop``: strings that end the text
    (one string, or several; which one counts: see ``StopStrings``). They are looked for in
    the text shown, so with ``skip_special`` a control token's own string never matches.
    Raises ``RequestError`` for an empty stop string. Cost per id: its own length, never
    that of the text so far.

    >>> stream = Detokenizer(tokenizer, stop=["\\n\\n"])      # doctest: +SKIP
    >>> for i in ids: print(stream.push(i), end="")           # doctest: +SKIP
    >>> print(stream.finish())                                # doctest: +SKIP
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] | str = (), skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special else frozenset()
        self._stream = tokenizer.text_rule.stream()
        self._stops = StopStrings(stop)
        self._parts: list[str] = []
        self._finished = False

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text, or None."""
        return self._stops.stopped

    @property
    def text(self) -> str:
        """All text returned so far. Costs its length; ask at the end, not at each token."""
        return "".join(self._parts)

    def push(self, token_id: int) -> str:
        """Add an id; return the text that is certain now ("" when nothing is, or after a stop string)."""
        if self._finished:
            raise RequestError(f"id {token_id} was pushed after finish(); a new text needs a new Detokenizer")
        token = None if token_id in self._hidden else self._tokenizer.token(token_id)
        return "" if token is None or self.stopped is not None else self._emit(self._stops.push(self._stream.push(token)))

    def finish(self) -> str:
        """End the text; return what was held: a false start of a stop string, U+FFFD for half a character."""
        if self._finished:
            return ""
        self._finished = True
        return self._emit(self._stops.push(self._stream.flush()) + self._stops.flush())

    def _emit(self, text: str) -> str:
        if text:
            self._parts.append(text)
        return text
