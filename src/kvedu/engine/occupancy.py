"""How much of a cache holds tokens, step by step: pure functions of a trace.

Places are what memory pays for: a page in use has C of them, whether they hold a token or not. The
waste of a run is the share of paid places that hold none: those at the end of a last page, or, where a page
is as long as the longest text allowed, all that was reserved and is not, or not yet, used.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvedu.engine.trace import Arrived, Ended, Preempted, Stepped, Trace, Verified
from kvedu.errors import KveduError


@dataclass(frozen=True)
class Occupancy:
    """A cache after a step, with those that the step ended already gone; ``seconds`` is what the step took.

    ``tokens`` counts a token that several sequences share once for each of them.
    """

    seconds: float
    sequences: int
    tokens: int
    places_in_use: int
    places: int
    waiting: int


def occupancy(trace: Trace, page_size: int) -> list[Occupancy]:
    """One ``Occupancy`` per step of the trace. Cost: O(steps x running sequences)."""
    copies = {event.request: event.copies for event in trace.of(Arrived)}
    forked: set[int] = set()
    held: dict[tuple[int, int], int] = {}
    rows: list[Occupancy] = []
    last: Stepped | None = None
    for event in [*trace.events, None]:
        if last is not None and not (isinstance(event, Ended | Verified) and event.time <= last.time):
            rows.append(_after(last, held, page_size))  # all that the step ended is gone
            last = None
        if isinstance(event, Ended | Preempted):
            held.pop((event.request, event.copy), None)
        elif isinstance(event, Verified):
            held[event.request, event.copy] += event.emitted - 1  # guesses that were kept
        elif isinstance(event, Stepped):
            last = event
            for share in event.shares:
                members = [share.copy]
                if share.sampled and share.request not in forked:  # the prompt has ended, and the copies begin
                    forked.add(share.request)
                    members = list(range(copies[share.request]))
                held |= {(share.request, copy): share.context + share.tokens for copy in members}
    return rows


def _after(step: Stepped, held: dict[tuple[int, int], int], page_size: int) -> Occupancy:
    used, pages = step.blocks_in_use, step.blocks_in_use + step.blocks_evictable + step.blocks_free
    return Occupancy(
        step.time - step.start, len(held), sum(held.values()), used * page_size, pages * page_size, step.waiting
    )


def waste(rows: list[Occupancy]) -> float:
    """Share of the places in use that hold no token, over a run: 0 to 1. Without shared pages.

    Raises ``KveduError`` if no step used a place.
    """
    paid = sum(row.places_in_use * row.seconds for row in rows)
    if paid <= 0:
        raise KveduError(f"{len(rows)} steps and no place in use: there is nothing that could be wasted")
    return 1 - sum(row.tokens * row.seconds for row in rows) / paid
