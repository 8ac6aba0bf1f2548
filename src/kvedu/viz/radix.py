"""Data of the radix tree view: the tree of a run, after each step that changed it.

A state is ``{"step", "label", "nodes", "matched", "evicted", "reused", "computed", "in_use", "evictable", "free"}``. A node is
``{"id", "parent", "blocks", "text", "used", "users"}``, its id the id of its first block; ``used`` is the time of its last use in
ticks of the tree's own clock, ``users`` how many sequences refer to its last block.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from kvedu.caches.prefix_radix import RadixReuse
from kvedu.engine.engine import Engine
from kvedu.engine.trace import Admitted, Ended, Preempted
from kvedu.errors import KveduError

CUT = 60
"""Characters of a node's text that are kept."""


def nodes(reuse: RadixReuse, references: Sequence[int], text_of: Callable[[list[int]], str]) -> list[dict[str, Any]]:
    """The nodes of all trees, parents first. ``text_of`` gives the text of token ids; ``references`` are the pool's."""
    found: list[dict[str, Any]] = []
    stack = [(node, None) for root in reuse._roots.values() for node in reversed(root.children.values())]
    while stack:
        node, parent = stack.pop()
        ids = [token for page in node.tokens for token in page]
        text = " ".join(text_of(ids[: 4 * CUT]).split())
        found.append({
            "id": node.blocks[0], "parent": parent, "blocks": list(node.blocks), "used": node.used,
            "text": text if len(text) <= CUT else text[: CUT - 1] + "…", "users": references[node.blocks[-1]],
        })  # fmt: skip
        stack += [(child, node.blocks[0]) for child in reversed(node.children.values())]
    return found


def record(
    engine: Engine, labels: Sequence[str] = (), *, before: Callable[[int], object] | None = None
) -> list[dict[str, Any]]:
    """Run an engine with ``reuse=RadixReuse`` until it is idle; the tree's state wherever it changed.

    ``before(step)`` is called ahead of each step and may add requests. ``labels`` name requests by id. Raises
    ``KveduError`` for an engine with another policy.
    """
    pool = engine.cache.tables.pool
    if not isinstance(pool.reuse, RadixReuse):
        raise KveduError(f"the radix view shows a RadixReuse; this engine's policy is {type(pool.reuse).__name__}")
    states: list[dict[str, Any]] = []
    step, seen = 0, len(engine.trace.events)
    known: list[dict[str, Any]] = []
    if before is not None:
        before(step)
    while not engine.idle:
        engine.step()
        events, seen = engine.trace.events[seen:], len(engine.trace.events)
        now = nodes(pool.reuse, pool.references, engine.model.tokenizer.decode)
        told = [_told(event, labels) for event in events if isinstance(event, Admitted | Ended | Preempted)]
        if told or _shape(now) != _shape(known):
            held, kept = _blocks(known), _blocks(now)
            admitted = [event for event in events if isinstance(event, Admitted)]
            states.append({
                "step": step, "label": "; ".join(told) or "the tree has grown", "nodes": now,
                "matched": sorted({b for event in admitted for b in _start(engine, event)}),
                "evicted": sorted(held - kept), "reused": sum(event.reused for event in admitted),
                "in_use": pool.in_use, "evictable": pool.evictable, "free": pool.free,
            })  # fmt: skip
            known = now
        step += 1
        if before is not None:
            before(step)
    return states


def data(states: Sequence[dict[str, Any]], *, title: str, block_size: int, predict: dict[str, Any] | None = None, **start: Any) -> dict[str, Any]:
    """The view's data; ``start`` may set the control ``at``, the index of a state."""
    given = {"figure": "radix", "title": title, "block_size": block_size, "states": list(states), "start": start}
    return given | ({"predict": predict} if predict else {})


def _told(event: Admitted | Ended | Preempted, labels: Sequence[str]) -> str:
    name = labels[event.request] if event.request < len(labels) else f"request {event.request}"
    name += f" #{event.copy + 1}" if event.copy else ""
    if isinstance(event, Admitted):
        return f"{name} comes in and finds {event.reused} tokens" if event.reused else f"{name} comes in and finds nothing"
    return f"{name} ends" if isinstance(event, Ended) else f"{name} is sent back to wait"


def _start(engine: Engine, event: Admitted) -> list[int]:
    """The blocks that a sequence began with."""
    for s in engine.scheduler.running:
        if (s.id, s.run.copy) == (event.request, event.copy):
            return engine.cache.tables.tables[s.run.seq][: event.reused // engine.cache.page_size]
    return []


def _shape(tree: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(node["parent"], tuple(node["blocks"])) for node in tree]


def _blocks(tree: list[dict[str, Any]]) -> set[int]:
    return {block for node in tree for block in node["blocks"]}
