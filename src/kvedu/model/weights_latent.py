"""Where the rows of a DeepSeek checkpoint's latent attention go: RoPE's part first, keys and values apart.

A checkpoint has [nope | rope] in each query head and [latent | rope] in the shared vector, RoPE's
pairs as neighbors, and one matrix whose rows are each head's keys and then its values. Here RoPE's part stands first,
in halves, so that ``view.rotate`` turns it like any other model's; queries and keys move alike, so no score changes.
"""

from __future__ import annotations

from typing import NamedTuple

from kvedu.config import ModelConfig
from kvedu.config_latent import LatentConfig
from kvedu.model.weight_parts import Part, Shape


class LatentRows(NamedTuple):
    """For each of our matrices the checkpoint's rows that make it, in order."""

    queries: tuple[int, ...]
    down: tuple[int, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]


def latent_rows(latent: LatentConfig, heads: int) -> LatentRows:
    """The rows for ``heads`` query heads.

    >>> latent_rows(LatentConfig(width=2, rope_width=4, nope_width=1, value_width=2), heads=2).queries
    (1, 3, 2, 4, 0, 6, 8, 7, 9, 5)
    >>> latent_rows(LatentConfig(width=2, rope_width=4, nope_width=1, value_width=2), heads=2).down
    (2, 4, 3, 5, 0, 1)
    """
    nope, size = latent.nope_width, latent.query_key_width
    pair = latent.nope_width + latent.value_width
    return LatentRows(
        queries=tuple(h * size + i for h in range(heads) for i in (*(nope + r for r in latent.rope_rows), *range(nope))),
        down=(*(latent.width + r for r in latent.rope_rows), *range(latent.width)),
        keys=tuple(h * pair + i for h in range(heads) for i in range(nope)),
        values=tuple(h * pair + i for h in range(heads) for i in range(nope, pair)),
    )


def latent_plan(config: ModelConfig, ours: str, theirs: str) -> dict[str, tuple[Part, ...]]:
    """Latent attention of one layer: rows put where RoPE wants them, and one matrix for keys and values taken apart."""
    latent, M, H = config.latent, config.M, config.H
    rows, kv_rows = latent_rows(latent, H), H * (latent.nope_width + latent.value_width)
    down_rows, q_in, made = latent.width + latent.rope_width, M, {}

    def one(target: str, source: str, shape: Shape, rows: tuple[int, ...] | None = None) -> None:
        made[f"{ours}.{target}"] = (Part(f"{theirs}.{source}", shape, rows),)

    if latent.query_width is not None:
        q_in = latent.query_width
        one("q_down.weight", "q_a_proj.weight", (q_in, M))
        one("q_norm.weight", "q_a_layernorm.weight", (q_in,))
        if config.qkv_bias:
            one("q_down.bias", "q_a_proj.bias", (q_in,))
    q_name = "q_proj" if latent.query_width is None else "q_b_proj"
    one("q.weight", f"{q_name}.weight", (H * latent.query_key_width, q_in), rows.queries)
    one("kv_down.weight", "kv_a_proj_with_mqa.weight", (down_rows, M), rows.down)
    if config.qkv_bias:
        one("kv_down.bias", "kv_a_proj_with_mqa.bias", (down_rows,), rows.down)
    one("kv_norm.weight", "kv_a_layernorm.weight", (latent.width,))
    one("k_up.weight", "kv_b_proj.weight", (kv_rows, latent.width), rows.keys)
    one("v_up.weight", "kv_b_proj.weight", (kv_rows, latent.width), rows.values)
    return made
