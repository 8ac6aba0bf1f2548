"""What attention moves and computes, tiled and untiled: the formulas that ``cost`` is the floor of.

``attention.cost`` touches each number once. A kernel reads K and V once per *block* of queries, and computes whole
tiles. For decode both are the same up to padding; for a prompt, fewer rows in a block mean more reads of the same keys,
which is why prefill blocks are large. Tests hold this to the loads counted in the interpreter.
"""

from __future__ import annotations

from typing import Sequence

from kvedu.units import Cost


def attention_traffic(
    steps: Sequence[tuple[int, int]], heads: int, kv_heads: int, head_dim: int, block_m: int, block_s: int,
    bytes_per_element: int = 2, padded_dim: int | None = None,
) -> Cost:  # fmt: skip
    """Work of one unsplit call over sequences of (new, committed) tokens, causal, no window.

    A block holds ``block_m // G`` tokens of one sequence; it reads its queries and all keys up to its last one, and
    computes whole tiles of ``block_m`` rows, ``block_s`` keys and ``padded_dim`` elements.

    >>> attention_traffic([(1, 63)], 4, 1, 16, 16, 64).read == (2 * 64 * 16 + 4 * 16) * 2
    True
    """
    group = heads // kv_heads
    tokens, dim = block_m // group, padded_dim or head_dim
    keys = tiles = rows = 0
    for new, old in steps:
        rows += new
        for start in range(0, new, tokens):
            end = old + min(start + tokens, new)
            keys += end
            tiles += -(-end // block_s)
    flops = 4.0 * dim * block_m * block_s * tiles * kv_heads
    queries = rows * heads * head_dim
    return Cost(flops, (2 * keys * kv_heads * head_dim + queries) * bytes_per_element, queries * bytes_per_element)


def naive_traffic(new: int, old: int, heads: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2) -> Cost:
    """Work of attention as three kernels that meet in memory: product, masked softmax, product; one sequence.

    Each writes its result out for the next to read, so that the T x (S + T) scores of every head cross the bus four times.
    Masked scores are computed too, and thrown away.

    >>> naive_traffic(1024, 0, 1, 1, 64).bytes / attention_traffic([(1024, 0)], 1, 1, 64, 128, 64).bytes > 5
    True
    """
    scores, queries, keys = heads * new * (old + new), heads * new * head_dim, kv_heads * (old + new) * head_dim
    read, written = queries + 2 * keys + 2 * scores, 2 * scores + queries
    return Cost(4.0 * head_dim * scores, read * bytes_per_element, written * bytes_per_element)


def on_chip(block_m: int, block_s: int, head_dim: int, bytes_per_element: int = 2) -> int:
    """Bytes that a program of the tiled kernel holds: its queries, one tile of K and of V, and in fp32 results, maxima and sums.

    It depends on the block sizes alone, not on how long the sequence is.

    >>> on_chip(64, 64, 64)
    41472
    """
    return bytes_per_element * head_dim * (block_m + 2 * block_s) + 4 * block_m * (head_dim + 2)
