"""Data of the trace player: runs of the engine, step by step, as the events that it left.

A run is ``{"name", "events", "tables", "slots"}``: ``events`` as ``engine.trace.Trace.to_json`` writes them, one object
each; ``tables`` (may be absent, as in a simulation) per step ``{"step", "held": [[request, copy, tokens, [block, …]],
…], "evictable": [block, …]}``, the state after that step; ``slots`` how many sequences may run at once.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Sequence

from kvedu.engine.engine import Engine
from kvedu.engine.trace import Trace

DIGITS = 6
"""Decimals of a second that are kept."""


def record(engine: Engine, name: str, *, before: Callable[[int], object] | None = None) -> dict[str, Any]:
    """Run an engine until it is idle and keep its events and, after each step, who holds which blocks.

    ``before(step)`` is called ahead of each step and may add requests. The run costs what the engine costs.
    """
    tables, step = [], 0
    if before is not None:
        before(step)
    while not engine.idle:
        engine.step()
        tables.append(held_blocks(engine, step))
        step += 1
        if before is not None:
            before(step)
    return run_of(engine.trace, name, slots=engine.scheduler.max_running, tables=tables)


def held_blocks(engine: Engine, step: int) -> dict[str, Any]:
    """Whose blocks are which after a step, and which are only remembered."""
    pool, tables = engine.cache.tables.pool, engine.cache.tables.tables
    held = [[s.id, s.run.copy, s.computed, list(tables[s.run.seq])] for s in engine.scheduler.running]
    remembered = [b for b in range(pool.n_blocks) if not pool.references[b] and pool.reuse and pool.reuse.holds(b)]
    return {"step": step, "held": held, "evictable": remembered}


def run_of(trace: Trace, name: str, *, slots: int, tables: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A run from a trace that exists already, the engine's or the simulator's; times start at the first event."""
    events = [json.loads(line) for line in trace.to_json().splitlines()]
    first = min((event.get("start", event["time"]) for event in events), default=0.0)
    for event in events:
        for key in ("time", "start"):
            if key in event:
                event[key] = round(event[key] - first, DIGITS)
    return {"name": name, "slots": slots, "events": events} | ({"tables": list(tables)} if tables else {})


def data(
    runs: Sequence[dict[str, Any]],
    *,
    title: str,
    block_size: int | None = None,
    n_blocks: int | None = None,
    labels: Sequence[str] = (),
    predict: dict[str, Any] | None = None,
    **start: Any,
) -> dict[str, Any]:
    """The player's data. ``labels`` name requests in the order of their ids; ``start`` sets controls
    (``run``, ``step``, ``rows`` = "sequences" or "slots", ``by`` = "steps" or "seconds")."""
    given = {"figure": "trace", "title": title, "runs": list(runs), "labels": list(labels), "start": start}
    if block_size is not None:
        given |= {"block_size": block_size, "n_blocks": n_blocks}
    return given | ({"predict": predict} if predict else {})
