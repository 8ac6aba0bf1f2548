"""The radix view shows the tree that is there: recorded from the policy itself, checked against the pool."""

import json
from pathlib import Path

import pytest

from kvedu.caches.block_tables import BlockTables
from kvedu.caches.blocks import BlockPool
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.viz import still
from kvedu.viz.node import evaluate
from kvedu.viz.radix import data, nodes

FIGURES = Path(__file__).resolve().parents[2] / "book" / "figures"
STORED = [p for p in sorted(FIGURES.glob("*.json")) if json.loads(p.read_text("utf-8"))["figure"] == "radix"]


def grown() -> tuple[BlockTables, RadixReuse]:
    """Two sequences that part after two blocks of two tokens; the first has ended."""
    reuse = RadixReuse(2)
    tables = BlockTables(BlockPool(8, 2, reuse))
    for seq, tokens in enumerate(([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8, 9])):
        start = tables.open_prefix(seq, tokens)
        tables.reserve({seq: (start, len(tokens) - start)})
        tables.remember(seq, tokens)
    tables.close(0)
    return tables, reuse


def test_nodes_are_the_trees() -> None:
    tables, reuse = grown()
    found = nodes(reuse, tables.pool.references, str)
    assert [(n["blocks"], n["parent"], n["users"]) for n in found] == [([0, 1], None, 1), ([2], 0, 0), ([3], 0, 1)]
    assert found[0]["text"] == "[1, 2, 3, 4]"


def test_rows_and_the_order_of_eviction() -> None:
    """What the script says goes first is what the policy evicts first."""
    tables, reuse = grown()
    tables.close(1)
    found = nodes(reuse, tables.pool.references, str)
    laid, order, held = evaluate("radix", [("rows", [found]), ("evictionOrder", [found]), ("blocksOf", [found])])
    assert [(one["node"]["id"], one["depth"]) for one in laid] == [(0, 0), (2, 1), (3, 1)]
    assert held == 4
    assert order == [2, 3]
    assert [reuse.evict(tables.pool.references) for _ in range(4)] == [*order, 1, 0]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_trees_are_whole(path: Path) -> None:
    """A block is in one node; parents exist; what is kept is what the pool could evict; evicted blocks are gone."""
    stored = json.loads(path.read_text("utf-8"))
    assert len(stored["states"]) > 5
    for at, state in enumerate(stored["states"]):
        blocks = [block for node in state["nodes"] for block in node["blocks"]]
        assert len(blocks) == len(set(blocks)) <= state["in_use"] + state["evictable"]
        ids = [node["id"] for node in state["nodes"]]
        for place, node in enumerate(state["nodes"]):
            assert node["id"] == node["blocks"][0]
            assert node["parent"] is None or node["parent"] in ids[:place]
        assert not set(state["evicted"]) & set(blocks)
        assert state["reused"] % stored["block_size"] == 0 and set(state["matched"]) <= set(blocks)
        assert "NaN" not in still("radix", stored, {"at": at}, 320).svg
    assert any(state["evicted"] for state in stored["states"]), "nothing is ever evicted: the figure has no failure state"
    assert sum(state["reused"] for state in stored["states"]) > 0


def test_an_empty_tree_draws() -> None:
    state = {"step": 0, "label": "nothing yet", "nodes": [], "matched": [], "evicted": [], "reused": 0,
             "in_use": 0, "evictable": 0, "free": 4}  # fmt: skip
    assert "0 blocks in 0 nodes" in still("radix", data([state], title="t", block_size=2)).say
