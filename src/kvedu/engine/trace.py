"""What happened, as frozen events: the only record, and what metrics, figures and tests read.

Events stand in the order in which they happened; ``time`` is in seconds of the engine's clock (or the
simulator's, from 0). A request is a number; its completions are copies 0, 1, ... of it. In the order of one step:

- ``Arrived``: a request came in, any time before.
- ``Preempted``, ``Admitted`` at the step's start: who was sent back to wait, then who was let in. Only admitted
  sequences hold blocks; a fork of a prompt (copies 1, ...) runs from the step that ends its prompt and has no
  ``Admitted`` of its own unless it was preempted.
- ``Stepped``: the forward pass, with one ``Share`` for each sequence in it, and the state of the blocks after it. In
  a simulation what has ended with the step has given its blocks back by then; in the engine too.
- ``Verified`` at the step's end, for each completion that is made with guesses and was due a token: what became of them.
  Its share says 1 token, the one that is computed in any case; the guesses that were kept are in the cache as well.
- ``Ended`` at the step's end, for each completion that it ended; an abort comes between steps.

An engine that is a step ahead writes a step's events when its tokens are known, with the time at which the step before had
ended as its start; what was computed for a text that had ended by then stands in no share.

``Trace.to_json`` writes one event a line, ``{"kind": "Stepped", "time": ..., field: value, ...}`` with the fields
below, shares as objects too; ``from_json`` reads that back. A figure needs nothing else: slots over time are
the shares of each step, the waiting line is ``waiting``, the pool is ``blocks_in_use``, ``blocks_evictable`` and
``blocks_free``; tokens that a step yields are its shares that ``sampled``, one each (a prompt's end: one for each
copy), or what ``Verified`` says was ``emitted``.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Arrived:
    """A request came in. ``time`` in seconds of the engine's clock, here and below."""

    time: float
    request: int
    prompt_tokens: int
    max_new_tokens: int
    copies: int = 1


class Share(NamedTuple):
    """One sequence's part in a step: ``tokens`` computed after ``context`` cached ones; ``sampled`` a token or not."""

    request: int
    copy: int
    tokens: int
    context: int
    sampled: bool


@dataclass(frozen=True)
class Stepped:
    """One forward pass, from ``start`` to ``time``, and the state of the blocks after it."""

    time: float
    start: float
    step: int
    shares: tuple[Share, ...]
    waiting: int
    blocks_in_use: int
    blocks_evictable: int
    blocks_free: int


@dataclass(frozen=True)
class Admitted:
    """A sequence got blocks for the first time, or ``again`` after preemption; ``reused`` tokens were there already.

    ``swapped_bytes`` were copied from host memory; None if it was not there.
    """

    time: float
    request: int
    copy: int
    reused: int
    again: bool
    swapped_bytes: int | None = None


@dataclass(frozen=True)
class Preempted:
    """A running sequence with ``computed`` tokens in the cache was sent back to wait.

    ``swapped_bytes`` were copied to host memory (0 if all of it was there already); None: it is computed again.
    """

    time: float
    request: int
    copy: int
    computed: int
    swapped_bytes: int | None = None


@dataclass(frozen=True)
class Verified:
    """A round of speculation: of ``guessed`` tokens, a tree of this ``depth``, ``accepted`` were kept.

    ``emitted`` tokens were added to the text, the target's own among them: ``accepted`` + 1, fewer where the text
    ended. 0 guessed: a decode in which nothing was guessed.
    """

    time: float
    request: int
    copy: int
    guessed: int
    depth: int
    accepted: int
    emitted: int


@dataclass(frozen=True)
class Ended:
    """A completion ended: "stop", "length", "abort", or "error" if its own logits were broken."""

    time: float
    request: int
    copy: int
    reason: str
    new_tokens: int


Event = Arrived | Admitted | Stepped | Preempted | Verified | Ended
_KINDS = {kind.__name__: kind for kind in (Arrived, Admitted, Stepped, Preempted, Verified, Ended)}


@dataclass
class Trace:
    """Events in the order in which they happened; a deque of bounded length forgets the oldest."""

    events: list[Event] | deque[Event] = field(default_factory=list)

    def of(self, kind: type) -> list:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def to_json(self) -> str:
        """One event a line: ``{"kind": ..., fields ...}``."""
        return "\n".join(json.dumps({"kind": type(event).__name__} | _fields(event)) for event in self.events)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """The trace that ``to_json`` wrote."""
        events: list[Event] = []
        for line in text.splitlines():
            raw = json.loads(line)
            kind = _KINDS[raw.pop("kind")]
            if kind is Stepped:
                raw["shares"] = tuple(Share(**share) for share in raw["shares"])
            events.append(kind(**raw))
        return cls(events)


def _fields(event: Event) -> dict:
    raw = dict(vars(event))
    if isinstance(event, Stepped):
        raw["shares"] = [share._asdict() for share in event.shares]
    return raw
