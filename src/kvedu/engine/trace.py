"""What happened, as frozen events: the only record, and what metrics, figures and tests read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Arrived:
    """A request came in. ``time`` in seconds of the engine's clock, here and below."""

    time: float
    request: int
    prompt_tokens: int
    max_new_tokens: int
    copies: int = 1


@dataclass(frozen=True)
class Share:
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
    """A sequence got blocks for the first time, or again after preemption; ``reused`` tokens were there already."""

    time: float
    request: int
    copy: int
    reused: int
    again: bool


@dataclass(frozen=True)
class Preempted:
    """A running sequence was sent back to wait, to be computed again."""

    time: float
    request: int
    copy: int
    computed: int


@dataclass(frozen=True)
class Ended:
    """A completion ended: "stop", "length", "abort", or "error" if its own logits were broken."""

    time: float
    request: int
    copy: int
    reason: str
    new_tokens: int


Event = Arrived | Admitted | Stepped | Preempted | Ended
_KINDS = {kind.__name__: kind for kind in (Arrived, Admitted, Stepped, Preempted, Ended)}


@dataclass
class Trace:
    """Events in the order in which they happened."""

    events: list[Event] = field(default_factory=list)

    def of(self, kind: type) -> list:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def to_json(self) -> str:
        """One event a line: ``{"kind": ..., fields ...}``."""
        return "\n".join(json.dumps({"kind": type(event).__name__} | asdict(event)) for event in self.events)

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
