"""Cascade attention over a shared prefix, the batch-invariant mode, and the Gumbel draw."""

import pytest
import torch
from scenes import DEVICE, hollow, make_scene

from kvedu.kernels import attention
from kvedu.kernels.cascade import SharedPrefix, cascade_attention, cascade_attention_reference
from kvedu.kernels.draw import draw, draw_reference, uniform
from kvedu.kernels.invariant import (  # fmt: skip
    ATTENTION, attention_blocks, attention_cost, cost,
    invariant_attention, invariant_linear, invariant_linear_reference,
)
from kvedu.kernels.launch import Chip, KernelError, missing, runs_on
from kvedu.kernels.paged_attention import PagedLayout, paged_attention_reference
from kvedu.kernels.splits import buffers_of, needed

needs_triton = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")
FIXED = {"block_m": 16, "block_s": 16, "split_tokens": 32}


def shared_scene(rests, tokens, C=16, dtype=torch.float32):
    """A prefix in two spare pages, then each sequence's own; everything unused is NaN."""
    scene = make_scene(rests, 6, 2, 16, C, dtype=dtype, spare=4)
    spare = [page for page in range(len(scene.k)) if page not in scene.layout.tables.flatten().tolist()]
    pages = spare[: -(-tokens // C)]
    for x in (scene.k, scene.v):
        flat = torch.randn(len(pages) * C, 2, 16, generator=torch.Generator().manual_seed(9)).to(x)
        flat[tokens:] = torch.nan
        x[pages] = flat.unflatten(0, (-1, C))
    return scene, SharedPrefix.of(pages, tokens, len(scene.q), DEVICE)


@needs_triton
@pytest.mark.parametrize("tokens", [1, 20])
@pytest.mark.parametrize("rests", [[(1, 0), (1, 7), (1, 30)], [(3, 5), (1, 0), (20, 0)]], ids=["decode", "mixed"])
@pytest.mark.parametrize("splits", [None, (2, 3)])
def test_a_shared_prefix_counts_once_and_for_all(tokens, rests, splits):
    """Prefixes that end within a page too; some splits hold no key."""
    scene, prefix = shared_scene(rests, tokens)
    got = cascade_attention(scene.q, scene.k, scene.v, prefix, scene.layout, triton=True, splits=splits, block_m=32, block_s=16)
    exact = cascade_attention_reference(scene.q, scene.k, scene.v, prefix, scene.layout)
    assert (got - exact).abs().max() < 1e-5


@needs_triton
def test_a_prefix_of_nothing_changes_nothing():
    """No page is shared: there is no tile to cut, and no page's number to read."""
    scene, _ = shared_scene([(1, 0), (3, 7)], 20)
    none = SharedPrefix.of([], 0, len(scene.q), DEVICE)
    exact = paged_attention_reference(scene.q.cpu(), scene.k.cpu(), scene.v.cpu(), scene.layout.to("cpu"))
    got = cascade_attention(scene.q, scene.k, scene.v, none, scene.layout, triton=True, block_m=32, block_s=16)
    assert (got.cpu() - exact).abs().max() < 1e-5


@needs_triton
def test_a_cascade_takes_block_sizes_and_nothing_else():
    """Cuts at fixed places would leave more parts than there is room for, and a window would be counted wrong."""
    scene, prefix = shared_scene([(1, 0), (1, 7)], 20)
    for other in ({"split_tokens": 16}, {"window": 4}, {"causal": False}):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            cascade_attention(scene.q, scene.k, scene.v, prefix, scene.layout, triton=True, splits=(1, 1), block_m=32, block_s=16, **other)
    tree = PagedLayout(scene.layout.tables, scene.layout.rows, torch.zeros(2, 1, dtype=torch.int64, device=DEVICE))
    with pytest.raises(KernelError, match="a cascade has no token trees"):
        cascade_attention(scene.q, scene.k, scene.v, prefix, tree, triton=True)


@pytest.mark.parametrize("triton", [pytest.param(True, marks=needs_triton), False])
def test_a_step_of_no_sequence_gives_nothing(triton):
    scene, prefix = shared_scene([(1, 0)], 20)
    nobody = PagedLayout.of([], [], device=DEVICE)
    assert cascade_attention(scene.q[:0], scene.k, scene.v, prefix, nobody, triton=triton).shape == (0, 6, 16)


def test_the_definition_is_attention_over_both():
    """A prefix of whole pages, put before each table, is ordinary paged attention."""
    scene, prefix = shared_scene([(2, 5), (1, 0)], 32)
    scene.k.nan_to_num_(), scene.v.nan_to_num_()
    tables = [[*prefix.table[0].tolist(), *table] for table in scene.layout.tables.tolist()]
    whole = PagedLayout.of(tables, [(first, new, old + 32) for first, new, old in scene.layout.rows.tolist()], device=DEVICE)
    together = cascade_attention(scene.q, scene.k, scene.v, prefix, scene.layout, triton=False)
    assert torch.allclose(together, paged_attention_reference(scene.q, scene.k, scene.v, whole), atol=1e-6)


@needs_triton
def test_attention_has_the_same_bits_alone_and_in_company():
    """C046: decode, a chunk and a prompt in one step, each row against itself alone."""
    scene = make_scene([(3, 40), (1, 70), (9, 0)], 6, 2, 16, 16)
    together = invariant_attention(scene.q, scene.k, scene.v, scene.layout, triton=True, **FIXED)
    exact = paged_attention_reference(scene.exact.q, scene.exact.k, scene.exact.v, scene.layout)
    assert (together.float() - exact).abs().max() < 2e-3
    for b, (first, new, old) in enumerate(scene.layout.rows.tolist()):
        for i in (0, new - 1):
            alone = PagedLayout(scene.layout.tables[b : b + 1], torch.tensor([[0, 1, old + i]], device=DEVICE))
            one = invariant_attention(scene.q[first + i][None], scene.k, scene.v, alone, triton=True, **FIXED)
            assert torch.equal(one[0], together[first + i]), (b, i)


@needs_triton
@pytest.mark.parametrize("longest", [33, 300])
def test_a_longer_neighbor_changes_no_bit(longest):
    """C046: a step's tables are as wide as its longest sequence needs, so a neighbor decides how many splits there are to merge."""
    scene = make_scene([(1, 100), (2, 200), (1, longest)], 6, 2, 16, 16, dtype=torch.float32)
    together = invariant_attention(scene.q, scene.k, scene.v, scene.layout, triton=True, **FIXED)
    for b, (first, new, old) in enumerate(scene.layout.rows.tolist()):
        tables = scene.layout.tables[b : b + 1, : -(-(new + old) // 16)].contiguous()
        alone = PagedLayout(tables, torch.tensor([[0, new, old]], device=DEVICE))
        one = invariant_attention(scene.q[first : first + new], scene.k, scene.v, alone, triton=True, **FIXED)
        assert torch.equal(one, together[first : first + new]), b


@pytest.mark.parametrize("triton", [pytest.param(True, marks=needs_triton), False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_products_have_the_same_bits_alone_and_in_company(triton, dtype):
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 70, generator=generator).to(dtype).to(DEVICE) for n in (21, 37))
    tile = dict(rows=16, outs=16, depth=32) if triton else {}
    together = invariant_linear(x, weight, triton=triton, **tile)
    exact = invariant_linear_reference(x.float(), weight.float())
    plain = (x @ weight.T).float()
    assert (together.float() - exact).abs().max() <= max(2 * (plain - exact).abs().max().item(), 2e-5)
    for rows in (slice(0, 1), slice(20, 21), slice(3, 9)):
        assert torch.equal(invariant_linear(x[rows], weight, triton=triton, **tile), together[rows])


@needs_triton
def test_a_product_reads_nothing_beyond_its_inputs():
    """Inputs and weights as slices of wider ones: NaN stands beside each row of both."""
    x, weight = hollow((5, 70), torch.float32, 2).to(DEVICE), hollow((37, 70), torch.float32, 2).to(DEVICE)
    x.copy_(torch.randn(5, 70)), weight.copy_(torch.randn(37, 70))
    got = invariant_linear(x, weight, triton=True, rows=16, outs=16, depth=32)
    assert (got - invariant_linear_reference(x.float(), weight.float())).abs().max() < 2e-5


def test_the_price_is_counted():
    """One row computes a whole tile of 64."""
    assert cost(1, 64, 64).flops == cost(64, 64, 64).flops == cost(65, 64, 64).flops / 2
    assert cost(1, 64, 64).read < cost(64, 64, 64).read


def test_the_parts_of_attention_are_counted():
    """By hand: 2 rows of 4 heads of 64 after 1,999 tokens, tables for 4,096 places: four parts in fp32 are written, two hold anything."""
    plain, counted = 2 * attention.cost(1, 1999, 4, 2, 64), attention_cost(2, 4, 2, 64, places=4096, cached=1999)
    assert counted.written == plain.written + 2 * 4 * 4 * 65 * 4
    assert counted.read == plain.read + 2 * 4 * (2 * 64 + 4) * 4


@needs_triton
def test_split_tokens_are_whole_blocks():
    scene = make_scene([(1, 4)], 2, 1, 16, 8)
    with pytest.raises(KernelError, match="split_tokens=24 must be a multiple of the key block, 16"):
        invariant_attention(scene.q, scene.k, scene.v, scene.layout, triton=True, block_m=16, block_s=16, split_tokens=24)


@needs_triton
@pytest.mark.parametrize("V, block", [(5, None), (70, 32), (64, 16)])
def test_a_draw_is_the_definition(V, block):
    """Hot, cold and greedy rows, seeds of more than 32 bits; the noise agrees to a last bit of the logarithm, so ids do."""
    generator = torch.Generator().manual_seed(V)
    logits = torch.randn(6, V, generator=generator, dtype=torch.float32).to(DEVICE) * 3
    heat = torch.tensor([0.0, 0.5, 1.0, 1.0, 2.0, 0.0], device=DEVICE)
    seeds = torch.tensor([0, 1, 2**40 + 3, 2**40 + 4, 12345, 7], device=DEVICE)
    least = logits.topk(3).values[:, -1]
    assert torch.equal(draw(logits, heat, seeds, triton=True, block=block), draw_reference(logits, heat, seeds))
    kept = draw(logits, heat, seeds, least, triton=True, block=block)
    assert torch.equal(kept, draw_reference(logits, heat, seeds, least)) and (logits.gather(1, kept[:, None])[:, 0] >= least).all()


@needs_triton
def test_of_equal_logits_the_first():
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0]], device=DEVICE)
    assert draw(logits, torch.zeros(1, device=DEVICE), torch.zeros(1, dtype=torch.int64, device=DEVICE), triton=True, block=2).tolist() == [1]


def test_draws_follow_the_softmax():
    """20,000 draws by the definition: each frequency within 4.5 standard deviations of its probability."""
    logits, n = torch.tensor([0.0, 1.0, 2.0, -torch.inf, 3.0]), 20_000
    ids = draw_reference(logits.expand(n, -1), torch.full((n,), 0.8), torch.arange(n))
    p = torch.softmax(logits / 0.8, 0)
    seen = torch.bincount(ids, minlength=5) / n
    assert ((seen - p).abs() <= 4.5 * (p * (1 - p) / n).sqrt()).all() and seen[3] == 0


@needs_triton
def test_noise_is_philox():
    """The kernel's noise, taken out by a kernel of our own call: ``uniform`` is Triton's generator, number for number."""
    wanted = uniform(torch.tensor([5, 2**35 + 1]), 40)
    assert ((wanted >= 0) & (wanted < 1)).all() and wanted[0].ne(wanted[1]).all()
    for row, seed in enumerate((5, 2**35 + 1)):
        for i in (0, 7, 39):  # a logit of 0 beside one set just below and just above what the noise makes equal
            u = wanted[row, [i, (i + 1) % 40]].double()
            gumbel = -torch.log(-torch.log(u))
            for off, winner in ((-1e-3, i), (1e-3, (i + 1) % 40)):
                logits = torch.full((1, 40), -torch.inf, device=DEVICE)
                logits[0, i], logits[0, (i + 1) % 40] = 0.0, float(gumbel[0] - gumbel[1]) + off
                got = draw(logits, torch.ones(1, device=DEVICE), torch.tensor([seed], device=DEVICE), triton=True, block=64)
                assert got.item() == winner


def held(blocks, D, dtype, chip):
    """Shared memory that a program of these blocks takes."""
    buffers = buffers_of(chip, blocks["stages"], blocks["block_m"])
    return needed(D, dtype.itemsize, blocks["block_m"], blocks["block_s"], buffers)


def test_one_shape_of_attention_for_each_precision_head_and_chip():
    """What registers hold decides, never a step; every split is whole blocks of keys."""
    for chip in (Chip(), Chip.known(75), Chip.known(90)):
        for D in (8, 64, 128, 256):
            for dtype in (torch.float16, torch.float32):
                fixed = attention_blocks(D, dtype, chip)
                assert fixed["split_tokens"] % fixed["block_s"] == 0 and not fixed["edges"]
                assert (fixed["stages"] > 1) == (chip.capability != 75) and held(fixed, D, dtype, chip) <= chip.shared
    assert [attention_blocks(128, torch.float16, Chip.known(c))["stages"] for c in (75, 80, 86, 120)] == [1, 5, 5, 5]
    assert attention_blocks(128, torch.bfloat16, Chip.known(90)) == ATTENTION
