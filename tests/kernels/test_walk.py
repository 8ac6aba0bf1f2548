"""The walk over tiles is the one that the kernel takes: program by program, load by load, in the interpreter."""

import pytest
from counting import counting
from scenes import make_scene

from kvedu.errors import KveduError
from kvedu.kernels.launch import interpreted
from kvedu.kernels.paged_attention import paged_attention
from kvedu.kernels.traffic import attention_traffic
from kvedu.kernels.walk import walk

CASES = [
    (40, 0, 2, 32, 16, None, True), (40, 0, 2, 32, 16, None, False), (9, 30, 3, 16, 16, None, True), (33, 7, 3, 64, 16, 20, True),
    (33, 7, 3, 64, 32, 20, False), (1, 63, 3, 16, 16, None, True), (21, 50, 1, 16, 16, 9, True),
    (20, 15, 1, 64, 16, None, True), (5, 50, 1, 16, 16, 35, True),  # just at the edge of a tile
]  # fmt: skip


def runs(spec):
    """The tiles of ``walk`` as lists of keys."""
    return [[list(range(tile.first, tile.end)) for tile in block.tiles] for block in spec]


@pytest.mark.skipif(not interpreted(), reason="loads are seen in Triton's interpreter")
@pytest.mark.parametrize("new, old, G, block_m, block_s, window, edges", CASES)
def test_the_kernel_loads_these_tiles_in_this_order(new, old, G, block_m, block_s, window, edges):
    D, K = 16, 1
    scene = make_scene([(new, old)], G * K, K, D, old + new, spare=0)  # one page: a key's place is its number
    with counting(k=scene.k, v=scene.v) as seen:
        paged_attention(scene.q, scene.k, scene.v, scene.layout, window, triton=True, block_m=block_m, block_s=block_s, splits=1, edges=edges)
    planned = walk(new, old, G, block_m, block_s, window=window, edges=edges)
    for name in ("k", "v"):
        by_program: dict = {}
        for access in seen.of(name):
            keys = sorted({int(place) // D for place in access.places})
            if keys:
                by_program.setdefault(access.program[1], []).append(keys)
        loaded = [tiles for _, tiles in sorted(by_program.items(), reverse=True)]  # the last block is program 0
        assert loaded == runs(planned)


def test_bytes_and_tiles_are_those_of_the_formula():
    for new, old, G, block_m, block_s, window, edges in CASES:
        if window is None:
            blocks = walk(new, old, G, block_m, block_s, edges=edges)
            cost = attention_traffic([(new, old)], G, 1, 16, block_m, block_s)
            tiles = [tile for block in blocks for tile in block.tiles]
            assert cost.flops == 4 * 16 * block_m * block_s * len(tiles)
            assert cost.read == (2 * 16 * sum(tile.end - tile.first for tile in tiles) + new * G * 16) * 2


def test_only_masked_tiles_hold_keys_that_a_row_must_not_see():
    for new, old, G, block_m, block_s, window, edges in CASES:
        for block in walk(new, old, G, block_m, block_s, window=window, edges=edges):
            for tile in block.tiles:
                sees_all = tile.end - 1 <= old + block.first and (not window or tile.first > old + block.end - 1 - window)
                assert tile.masked or sees_all
                assert not (tile.masked and sees_all and edges and not window), "a mask is made only where one is needed"


def test_a_block_that_holds_no_token_is_refused():
    with pytest.raises(KveduError, match="does not hold the 9 query heads"):
        walk(4, 0, 9, 8, 16)
