"""Token trees over pages: the native kernel and its definition see ancestors, nothing else, at positions by depth."""

import random

import pytest
import torch
from test_paged_attention import scene

from kvedu.caches.layout import plan
from kvedu.kernels import native
from kvedu.kernels.attention import attention_reference
from kvedu.kernels.family import family, paths
from kvedu.kernels.paged_attention import PagedLayout, paged_attention, paged_attention_reference

SHAPES = [(9, 3, 64, 16), (4, 4, 16, 1), (8, 1, 80, 4), (5, 5, 34, 7), (200, 2, 8, 3)]


def bushes(n, seed=0):
    """Parents of a tree of n new tokens: a text's last token and guesses that hang anywhere."""
    rng = random.Random(seed)
    return [-1, *(rng.randrange(i) for i in range(1, n))]


SPECS = {
    "small": [(7, 0), (7, 60), (3, 1), (1, 30)],
    "over a block's edge": [(20, 50), (64, 63), (5, 64)],
    "more than a word of bits": [(65, 40), (140, 3), (70, 128), (2, 200)],
    "between chains": [(5, 61), (9, 0), (40, 90)],
}


def judged(q, k, v, layout, spec, trees, window):
    """Sequence by sequence: a mask from ``Row.visible``, which knows nothing of bits."""
    C, outs = k.shape[1], []
    rows = plan({b: new for b, (new, _) in enumerate(spec)}, {b: range(old) for b, (_, old) in enumerate(spec)},
                {b: tree for b, tree in enumerate(trees) if tree is not None})
    for row, table in zip(rows, layout.tables.tolist()):
        places = torch.tensor([table[t // C] * C + t % C for t in range(row.total)])
        k_SKD, v_SKD = (x.flatten(0, 1)[places] for x in (k, v))
        outs.append(attention_reference(q[row.rows], k_SKD, v_SKD, row.visible(window)))
    return torch.cat(outs)


def tree_scene(name, shape, window, dtype=torch.float32):
    spec = SPECS[name]
    q, k, v, layout, _ = scene(spec, *shape, dtype=dtype)
    trees = [None if name == "between chains" and b != 1 else bushes(new, seed=b) for b, (new, _) in enumerate(spec)]
    return q, k, v, PagedLayout(layout.tables, layout.rows, family(layout.rows.tolist(), trees, window)), spec, trees


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("window", [None, 1, 3, 20, 64])
def test_the_definition_sees_ancestors_by_depth(name, shape, window):
    q, k, v, layout, spec, trees = tree_scene(name, shape, window)
    exact = judged(q, k, v, layout, spec, trees, window)
    torch.testing.assert_close(paged_attention_reference(q, k, v, layout, window), exact, rtol=0, atol=1e-6)


@pytest.mark.skipif(isinstance(native.library(), native.Unavailable), reason="no native kernels here (no GPU needed)")
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("window", [None, 1, 3, 20, 64])
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 3e-6), (torch.bfloat16, 0.03)], ids=["fp32", "bf16"])
def test_the_kernel_equals_the_definition(name, shape, window, dtype, limit):
    q, k, v, layout, spec, trees = tree_scene(name, shape, window, dtype)
    exact = judged(q.float(), k.float(), v.float(), layout, spec, trees, window)
    assert (paged_attention(q, k, v, layout, window).float() - exact).abs().max() < limit


@pytest.mark.skipif(isinstance(native.library(), native.Unavailable), reason="no native kernels here (no GPU needed)")
def test_a_chain_given_as_a_tree_gives_the_bits_of_a_chain():
    q, k, v, layout, _ = scene([(9, 60), (70, 5)], 9, 3, 64, 16, dtype=torch.bfloat16)
    chains = [list(range(-1, new - 1)) for new in (9, 70)]
    for window in (None, 7):
        tree = PagedLayout(layout.tables, layout.rows, family(layout.rows.tolist(), chains, window))
        assert torch.equal(paged_attention(q, k, v, tree, window), paged_attention(q, k, v, layout, window))


def test_a_node_does_not_see_its_uncle():
    """By position alone node 3, a child of node 2, would see node 1, its uncle."""
    assert paths([-1, 0, 0, 2])[3] == 0b1101
    assert family([(0, 2, 9), (2, 3, 1)], [None, [-1, 0, 0]]).tolist() == [[0], [0], [1], [3], [5]]
    long = family([(0, 130, 0)], [list(range(-1, 129))])
    assert long.shape == (130, 3) and long[129].tolist() == [-1, -1, 3] and long[63].tolist() == [-1, 0, 0]
