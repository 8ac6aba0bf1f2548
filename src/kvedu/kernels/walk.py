"""Which keys each program of the attention kernel loads, in which order: the loop bounds of ``attend``, as plain numbers.

For one sequence, unsplit, causal. Tests hold it to the loads that the kernel makes in the interpreter; figures and
pages draw from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvedu.errors import KveduError


@dataclass(frozen=True)
class Tile:
    """Keys ``first`` .. ``end`` - 1 of one step of the loop; ``masked``: some row must not see some of them, so a mask is made."""

    first: int
    end: int
    masked: bool


@dataclass(frozen=True)
class Block:
    """One program: its new tokens ``first`` .. ``end`` - 1 (each with the G heads of a group), and the tiles that it walks over."""

    first: int
    end: int
    tiles: tuple[Tile, ...]


def walk(new: int, old: int, group: int, block_m: int, block_s: int, *, window: int | None = None, edges: bool = True) -> list[Block]:
    """The programs of one KV head over ``new`` tokens after ``old`` committed ones, first block first.

    ``edges``: tiles that every row sees whole are taken in a loop of their own, without a mask (as the kernel does for
    blocks of more than 32 rows). Raises ``KveduError`` where a block does not hold one token's group.

    >>> [[(tile.first, tile.end, tile.masked) for tile in block.tiles] for block in walk(32, 0, 1, 16, 16)]
    [[(0, 16, True)], [(0, 16, False), (16, 32, True)]]
    """
    tokens = block_m // group
    if not tokens:
        raise KveduError(f"a block of {block_m} rows does not hold the {group} query heads of one token; give more rows")
    blocks = []
    for first in range(0, new, tokens):
        last = min(first + tokens, new)
        end = old + last
        lo = max(old + first + 1 - window, 0) // block_s * block_s if window else 0
        tiles: list[Tile] = []
        if edges:
            inner = min(end, old + first + 1)  # every row sees the keys before this one
            if window:  # and after this one
                left = min(end, -(-max(end - window, 0) // block_s) * block_s)
                tiles += _tiles(lo, left, block_s, True)
                lo = max(lo, left)
            whole = lo + max(inner - lo, 0) // block_s * block_s
            tiles += _tiles(lo, whole, block_s, False)
            lo = whole
        tiles += _tiles(lo, end, block_s, True)
        blocks.append(Block(first, last, tuple(tiles)))
    return blocks


def _tiles(lo: int, hi: int, size: int, masked: bool) -> list[Tile]:
    return [Tile(start, min(start + size, hi), masked) for start in range(lo, hi, size)]
