"""Where the rows of a DeepSeek checkpoint's latent attention go: RoPE's part first, keys and values apart.

A checkpoint has [nope | rope] in each query head and [latent | rope] in the shared vector, RoPE's
pairs as neighbors, and one matrix whose rows are each head's keys and then its values. Here RoPE's part stands first,
in halves, so that ``view.rotate`` turns it like any other model's; queries and keys move alike, so no score changes.
"""

from __future__ import annotations

from typing import NamedTuple

from kvedu.config_latent import LatentConfig


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
