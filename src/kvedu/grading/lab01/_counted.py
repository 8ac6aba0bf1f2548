"""Count what goes through a layer's projections, in real generations of a tiny model."""

from __future__ import annotations

from kvedu.caches.concat import ConcatCache
from kvedu.config import ModelConfig
from kvedu.grading.exercise import Case
from kvedu.grading.fresh import Fresh
from kvedu.model.loops import greedy_cached, greedy_uncached
from kvedu.model.transformer import Transformer
from kvedu.rope_config import RopeConfig

TINY = ModelConfig(
    n_layers=1, width=8, n_heads=2, n_kv_heads=1, head_dim=4, mlp_width=8, vocab_size=16, max_positions=256, rope=RopeConfig(dim=4)
)  # fmt: skip


def cases(fresh: Fresh) -> list[Case]:
    """Prompt lengths and numbers of new tokens, edges first."""
    pairs = [(1, 1), (7, 1), (1, 6), (3, 4)] + [(fresh.integer(5, 40), fresh.integer(7, 20)) for _ in range(3)]
    return [Case(f"P={P}, n={n}", (P, n)) for P, n in pairs]


def rows_counted(P: int, n: int, *, cached: bool) -> int:
    """Rows that go through the key and value projections of one layer while n tokens are generated."""
    model, rows = Transformer(TINY).eval(), []
    for weight in model.parameters():
        weight.data.fill_(0.1)
    model.layers[0].attn.qkv.register_forward_hook(lambda module, args, out: rows.append(len(args[0])))
    if cached:
        greedy_cached(model, [1] * P, n, ConcatCache(TINY))
    else:
        greedy_uncached(model, [1] * P, n)
    return sum(rows)
