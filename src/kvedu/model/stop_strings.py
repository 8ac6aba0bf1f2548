"""Find the first stop string in a text that grows, and say how much of it is safe to show.

Each stop string is followed by a Knuth-Morris-Pratt automaton: after every character
it knows the longest beginning of the stop string that the text now ends in. That
beginning is what must be held back. Cost: a constant number of steps per character
and stop string, whatever the lengths (Knuth, Morris, Pratt 1977).
"""

from __future__ import annotations

from typing import Sequence

from kvedu.errors import RequestError


class StopStrings:
    """Cut a growing text before the stop string that starts first.

    Of two that start at the same place the shorter one counts: it is complete first.
    The result depends on the text alone, not on the pieces in which it came; so a
    complete stop string waits while one that starts before it may still come true.
    """

    def __init__(self, stop: Sequence[str] | str = ()) -> None:
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        for text in stops:
            if not isinstance(text, str) or not text:
                raise RequestError(f"stop holds {text!r}; each stop string needs at least one character")
        self._stops = stops
        self._borders = [_borders(text) for text in stops]
        self._matched = [0] * len(stops)  # characters of each stop string that the text ends in
        self._held = ""  # text not released yet
        self._start = 0  # where _held starts in the whole text
        self._end = 0  # length of the whole text
        self._found: tuple[int, int, str] | None = None  # start, length, stop string
        self.stopped: str | None = None

    def push(self, text: str) -> str:
        """Add text; return what may be shown. After a stop string nothing more is returned."""
        if self.stopped is not None:
            return ""
        if not self._stops:
            return text
        self._held += text
        for char in text:
            self._step(char)
            if self._found and self._first_open() >= self._found[0]:
                return self._cut()
        limit = self._first_open()
        return self._release(min(limit, self._found[0]) if self._found else limit)

    def flush(self) -> str:
        """End the text; return what was held back (up to the stop string, if one was waiting)."""
        if self.stopped is not None:
            return ""
        return self._cut() if self._found else self._release(self._end)

    def _step(self, char: str) -> None:
        self._end += 1
        for i, stop in enumerate(self._stops):
            size = self._matched[i]
            while size and stop[size] != char:
                size = self._borders[i][size - 1]
            size += stop[size] == char
            if size == len(stop):
                match = (self._end - size, size, stop)
                self._found = min(self._found, match) if self._found else match
                size = 0  # a later match of the same stop string starts later and never counts
            self._matched[i] = size

    def _first_open(self) -> int:
        """The first place in the text where a stop string may have begun."""
        return self._end - max(self._matched)

    def _cut(self) -> str:
        text = self._release(self._found[0])
        self.stopped, self._held = self._found[2], ""
        return text

    def _release(self, end: int) -> str:
        size = end - self._start
        text, self._held, self._start = self._held[:size], self._held[size:], end
        return text


def _borders(stop: str) -> list[int]:
    """For each prefix of ``stop``, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(stop)
    size = 0
    for i in range(1, len(stop)):
        while size and stop[i] != stop[size]:
            size = borders[size - 1]
        size += stop[i] == stop[size]
        borders[i] = size
    return borders
