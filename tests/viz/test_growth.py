"""The growing cache counts what ``kvedu.analysis.flops`` counts, at every step of a generation."""

import itertools

from kvedu.analysis.flops import generation_cost, kv_projection_flops, total
from kvedu.analysis.known_models import known_model
from kvedu.caches.concat import ConcatCache
from kvedu.viz import growth, still
from kvedu.viz.configs import sizes
from kvedu.viz.node import evaluate

CONFIG = known_model("SmolLM2-135M").config
GRID = list(itertools.product((1, 2, 30), (0, 1, 20), (True, False), (2, 4)))


def test_work_and_bytes_so_far() -> None:
    found = evaluate("growth", [("soFar", [sizes(CONFIG, "m"), P, i, cached, size]) for P, i, cached, size in GRID])
    for (P, i, cached, size), mine in zip(GRID, found, strict=True):
        cost = total(generation_cost(CONFIG, P, i + 1, cached, bytes_per_element=size))
        assert (mine["flops"], mine["bytes"]) == (cost.flops, cost.bytes), (P, i, cached, size)
        rows = kv_projection_flops(CONFIG, P, i + 1, cached) // kv_projection_flops(CONFIG, 1, 1, True)
        assert mine["rows"] == rows


def test_rows_held_are_a_caches_length() -> None:
    """Before step i the cache holds what a real one holds."""
    cache, wanted = ConcatCache(CONFIG), []
    seq = cache.add()
    for count in (5, 1, 1):
        wanted.append(cache.length(seq))
        with cache.step({seq: count}) as view:
            for layer in range(CONFIG.L):
                rows = view.positions.new_zeros(count, CONFIG.K, CONFIG.D).float()
                view.append(layer, rows, rows)
    assert evaluate("growth", [("held", [5, i, True]) for i in range(3)]) == wanted == [0, 5, 6]
    assert evaluate("growth", [("computed", [5, i, True]) for i in range(3)]) == [5, 1, 1]
    assert evaluate("growth", [("held", [5, i, False]) for i in range(3)]) == [0, 0, 0]
    assert evaluate("growth", [("computed", [5, i, False]) for i in range(3)]) == [5, 6, 7]


def test_what_it_says() -> None:
    data = growth.data(["a", " b"], [" c", "\n", " d"], CONFIG, step=1)
    assert "computes 1 row of K and of V in each layer and reads 2 from the cache" in still("growth", data).say
    assert "computes 3 rows" in still("growth", data, {"cached": False}).say
    assert "“⏎”" in still("growth", data).say
    assert data["predict"]["because"].startswith("9 in each layer and head, instead of 4")
