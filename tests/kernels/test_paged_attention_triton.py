"""The Triton attention kernel against its definition: odd sizes, every branch, unused memory full of NaN."""

import pytest
import torch
from attention_laws import law_equals_definition
from scenes import DEVICE, DTYPES, make_scene

from kvedu.kernels.launch import Chip, KernelError, interpreted, missing, runs_on
from kvedu.kernels.paged_attention import PagedLayout, paged_attention, paged_attention_reference
from kvedu.kernels.watch import watching

pytestmark = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")


def run(q, k, v, layout, window=None, **blocks):
    return paged_attention(q, k, v, layout, window, triton=True, **blocks)


DECODE = [(1, 0), (1, 15), (1, 16), (1, 17), (1, 70)]
PROMPTS = [(1, 0), (5, 0), (19, 0), (34, 0)]
CHUNKS = [(3, 29), (16, 16), (18, 37), (1, 33), (7, 0)]
SMALL = {"block_m": 16, "block_s": 16}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 1, 20])
@pytest.mark.parametrize(
    "spec, blocks",
    [
        (DECODE, SMALL),
        (DECODE, SMALL | {"splits": 3}),
        (DECODE, SMALL | {"split_tokens": 32}),
        (PROMPTS, SMALL | {"edges": True}),
        (CHUNKS, SMALL | {"edges": True}),
        (CHUNKS, SMALL | {"edges": False, "splits": 2}),
        (CHUNKS, {"block_m": 32, "block_s": 32, "edges": True, "split_tokens": 32}),
    ],
)
def test_every_branch(spec, blocks, window, dtype):
    law_equals_definition(run, make_scene(spec, 6, 2, 16, 16, dtype=dtype), window, **blocks)


@pytest.mark.parametrize("C", [1, 5, 16, 32, 100])
@pytest.mark.parametrize("spec", [DECODE, CHUNKS], ids=["decode", "chunks"])
def test_pages_of_any_size(C, spec):
    """A tile of several pages, of parts of pages, of one page, and (the last) one page for a whole sequence."""
    law_equals_definition(run, make_scene(spec, 6, 2, 16, C), **SMALL, edges=True)


@pytest.mark.parametrize("D", [2, 8, 16, 24, 34, 48, 64, 80, 96, 128, 192, 256])
def test_heads_of_any_size(D):
    """C093: sizes that are no power of two are padded in registers, never in memory, to no less than a product takes; 256 as the rule cuts it too."""
    if D == 256:
        law_equals_definition(run, make_scene([(1, 30), (1, 70)], 2, 1, D, 16))
        law_equals_definition(run, make_scene([(9, 18)], 2, 1, D, 16, dtype=torch.float32))
    law_equals_definition(run, make_scene([(1, 30), (3, 18)], 6, 2, D, 16), **SMALL)


def test_heads_that_no_chip_holds_go_through_pytorch():
    """C093: beyond 256, and where shared memory is too small for the smallest blocks, the kernel says no before it is compiled."""
    from kvedu.kernels.paged_attention_triton import fits

    for capability in (75, 80, 90, 100):
        chip = Chip.known(capability)
        assert fits(chip, 256, torch.float16, 4) and not fits(chip, 257, torch.float16) and not fits(chip, 64, torch.float64)
        assert fits(chip, 128, torch.bfloat16) == (capability != 75)
    assert not fits(Chip(90, 132, 16 * 1024), 256, torch.float16)


def test_all_of_a_wide_head_is_used():
    """C093: only the last 64 of 128 elements carry anything."""
    scene = make_scene([(1, 30), (4, 0)], 2, 1, 128, 16, dtype=torch.float32)
    for x in (scene.q, scene.k):
        x[..., :64] = 0
    law_equals_definition(run, scene)


@pytest.mark.parametrize("DV", [4, 16, 48])
def test_values_of_another_width(DV):
    scene = make_scene(CHUNKS, 6, 2, 32, 16, DV=DV, dtype=torch.float32)
    law_equals_definition(run, scene, None, **SMALL)
    law_equals_definition(run, scene, None, **SMALL, splits=2)
    law_equals_definition(run, make_scene(CHUNKS, 3, 1, 32, 16, DV=DV, dtype=torch.float32), None, **SMALL)  # of 4: rows of V no multiple of 8 apart


@pytest.mark.parametrize("H, K", [(12, 12), (32, 8), (28, 4), (8, 1), (4, 2), (9, 3), (25, 1)])
def test_a_query_head_reads_its_own_kv_head(H, K):
    """C001: values of KV head j are j everywhere, so query head h gets h // G whatever the weights are."""
    scene = make_scene([(1, 20), (2, 0)], H, K, 16, 16, dtype=torch.float32)
    scene.v.copy_(torch.arange(K, device=DEVICE)[:, None].expand(scene.v.shape))
    want = torch.arange(H, device=DEVICE) // (H // K)
    assert (run(scene.q, scene.k, scene.v, scene.layout) - want[:, None]).abs().max() < 1e-5


@pytest.mark.parametrize("new, old", [(1, 3), (2, 5)])
def test_queries_are_the_last_tokens(new, old):
    """C002: one query over 4 keys sees all 4; of a chunk of 2 after 5, the first sees 6 and the second 7."""
    scene = make_scene([(new, old)], 2, 1, 16, 4, dtype=torch.float32)
    scene.q.zero_()
    scene.v.nan_to_num_()
    for page, t in enumerate(scene.layout.tables[0].tolist()):
        scene.v[t] = torch.arange(4 * page, 4 * page + 4, device=DEVICE)[:, None, None]
    got = run(scene.q, scene.k, scene.v, scene.layout)[:, 0, 0]
    assert torch.allclose(got.cpu(), torch.tensor([(old + i) / 2 for i in range(new)]), atol=1e-5)  # mean of 0 .. old + i


@pytest.mark.parametrize("W", [1, 4, 10, 12, 0, None])
@pytest.mark.parametrize("pieces", [[10], [3, 3, 3, 1], [1] * 10], ids=["prompt", "chunks", "one by one"])
def test_a_window_of_w_shows_w(W, pieces):
    """C075: token i sees i - W + 1 .. i, by whatever path it comes; 0 and None are no window."""
    old, got = 0, []
    for new in pieces:
        scene = make_scene([(new, old)], 2, 1, 16, 4, dtype=torch.float32)
        scene.q.zero_()  # so that all that is seen counts alike
        for i, page in enumerate(scene.layout.tables[0].tolist()):
            scene.v[page] = torch.arange(4.0 * i, 4.0 * i + 4, device=DEVICE)[:, None, None]
        got += run(scene.q, scene.k, scene.v, scene.layout, W, block_m=16, block_s=16)[:, 0, 0].tolist()
        old += new
    seen = [range(max(0, i + 1 - (W or 10)), i + 1) for i in range(10)]
    assert got == pytest.approx([sum(r) / len(r) for r in seen], abs=1e-5)


def test_any_strides():
    """Gaps of NaN between pages, tokens, heads and queries; queries as a slice of a wider product."""
    law_equals_definition(run, make_scene(CHUNKS, 6, 2, 24, 8, stretch=2), 20, **SMALL)
    law_equals_definition(run, make_scene(CHUNKS, 6, 2, 24, 8, stretch=2), None, **SMALL, edges=True)
    law_equals_definition(run, make_scene(DECODE, 6, 2, 24, 8, stretch=2), None, **SMALL, splits=2)


def test_tables_are_a_slice_of_wider_ones():
    """A server's tables are as wide as a sequence may ever get: the distance between two of them is not how many entries are used."""
    scene = make_scene(DECODE, 6, 2, 16, 16)
    wide = torch.full((len(DECODE), 40), -1, dtype=torch.int32, device=DEVICE)
    part = wide[:, : scene.layout.tables.shape[1]].copy_(scene.layout.tables)
    law_equals_definition(run, type(scene)(scene.q, scene.k, scene.v, PagedLayout(part, scene.layout.rows), scene.dense), **SMALL)


@pytest.mark.parametrize("blocks", [SMALL, SMALL | {"splits": 2}], ids=["whole", "split"])
@pytest.mark.parametrize("spec", [[(0, 9), (6, 5), (0, 4), (1, 7), (0, 1), (0, 1), (0, 2)], [(9, 20), *[(0, 3)] * 8]])
def test_as_many_rows_as_sequences_are_not_one_each(spec, blocks):
    """A step of B rows in which a sequence has two or none: block b is not sequence b then."""
    law_equals_definition(run, make_scene(spec, 6, 2, 16, 16, dtype=torch.float32, spare=5), None, **blocks)


def test_one_each_is_a_promise_of_the_layout():
    """Made from lists it is known; made from tensors it is not, and nothing but the way there changes; a promise that cannot be kept is refused."""
    scene = make_scene(DECODE, 6, 2, 16, 16)
    assert scene.layout.one_each and scene.layout.to("cpu").one_each and not make_scene([(2, 1), (0, 1)]).layout.one_each
    by_hand = PagedLayout(scene.layout.tables, scene.layout.rows)
    assert torch.equal(run(scene.q, scene.k, scene.v, by_hand, **SMALL), run(scene.q, scene.k, scene.v, scene.layout, **SMALL))
    with pytest.raises(KernelError, match="one new token of each of 5 sequences, and there are 4 rows"):
        run(scene.q[:4], scene.k, scene.v, scene.layout)


def test_splits_that_hold_no_key():
    """One key over six splits: five leave nothing, and what is in their memory is never read."""
    scene = make_scene([(1, 0), (1, 40)], 4, 2, 16, 16)
    law_equals_definition(run, scene, None, **SMALL, splits=6)
    law_equals_definition(run, scene, 3, **SMALL, split_tokens=16)


TREE, BROAD = [-1, 0, 0, 1, 1, 2], [-1, -1, 0, 1, 2, 4]


@pytest.mark.parametrize("window", [None, 3, 20])
@pytest.mark.parametrize("edges", [True, False])
def test_token_trees(window, edges):
    """Trees beside a plain sequence: a node sees its ancestors, not its uncles, and a window counts along its path."""
    scene = make_scene([(6, 33), (1, 5), (6, 20)], 6, 2, 16, 16, parents=[TREE, None, BROAD], window=window)
    law_equals_definition(run, scene, window, **SMALL, edges=edges)
    law_equals_definition(run, scene, window, **SMALL, edges=edges, splits=2)


@pytest.mark.parametrize("old", [15, 31])
def test_a_tree_of_two_roots_at_the_end_of_a_block(old):
    """The first new token completes a block of keys, and the second root does not see it: no tile with a new token is seen whole."""
    scene = make_scene([(4, old)], 2, 1, 16, 16, parents=[[-1, -1, 0, 1]], dtype=torch.float32)
    law_equals_definition(run, scene, None, **SMALL, edges=True)


def test_a_tree_of_more_than_one_word():
    tree = [max(-1, i - 3) for i in range(70)]
    law_equals_definition(run, make_scene([(70, 21)], 2, 1, 16, 16, parents=[tree], window=40), 40, block_m=64, block_s=32)


def test_a_static_cache_is_one_long_page():
    """Slots ``[slots, K, length, D]``, seen as pages: one per sequence, no two of its tokens side by side in memory order."""
    scene = make_scene([(3, 40), (1, 9)], 6, 2, 16, 50)
    k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (scene.k, scene.v))
    assert k.stride(1) == 16 and k.stride(2) == 50 * 16
    law_equals_definition(run, type(scene)(scene.q, k, v, scene.layout, scene.dense), **SMALL)


@pytest.mark.parametrize("whose", ["k", "v"])
def test_keys_and_values_may_lie_differently(whose):
    """One address serves both only where it may."""
    scene = make_scene([(3, 40), (1, 9)], 6, 2, 16, 16)
    k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) if name == whose else x for name, x in (("k", scene.k), ("v", scene.v)))
    law_equals_definition(run, type(scene)(scene.q, k, v, scene.layout, scene.dense), **SMALL)


@pytest.mark.parametrize("C", [16, 50], ids=["pages", "one page each"])
def test_pages_of_keys_and_values_may_lie_apart_differently(C):
    """Slots of a page alike, pages not: V in a store that has another layer's between any two of its pages."""
    scene = make_scene([(3, 40), (1, 9)], 6, 2, 16, C)
    v = torch.full((2 * len(scene.v), *scene.v.shape[1:]), torch.nan, dtype=scene.v.dtype, device=DEVICE)[::2].copy_(scene.v)
    law_equals_definition(run, type(scene)(scene.q, scene.k, v, scene.layout, scene.dense), **SMALL)


def test_how_places_are_counted():
    """By 8 up to the last place that 32 bits hold, in one long page too; one side that cannot be is enough for both to be counted singly."""
    from kvedu.kernels.paged_attention_triton import unit_of

    few = torch.empty(1, 4, 1, 16, device="meta")
    for P, C, x_p, x_c, unit in ((2**20 - 2, 16, 2**14, 2**10, 8), (2**20, 16, 2**14, 2**10, 1), (1, 2**20, 16, 2**13, 8), (1, 2**21, 16, 2**13, 1)):
        x = torch.empty(0, device="meta").as_strided((P, C, 1, 16), (x_p, x_c, 16, 1))
        assert unit_of(few, x) == unit_of(x, few) == unit, (P, C)


@pytest.mark.skipif(not interpreted(), reason="accesses are seen in Triton's interpreter")
@pytest.mark.parametrize("C", [5, 16, 100])
@pytest.mark.parametrize("blocks", [{"edges": True}, {"edges": False, "splits": 2}], ids=["edges", "split"])
def test_nothing_is_read_beside_the_tensors(C, blocks):
    """C094: tables end with the last page, and gaps lie between rows of queries, keys and values; not even what is thrown away comes from there."""
    from kvedu.kernels.paged_attention_triton import plan_attention

    for spec in (DECODE, CHUNKS):
        scene = make_scene(spec, 6, 2, 24, C, stretch=2)
        out = torch.empty_like(scene.q)
        for launch in plan_attention(scene.q, scene.k, scene.v, scene.layout.tables, scene.layout.rows, out, chip=Chip(), **SMALL, **blocks):
            with watching(strict=True, **{name: x for name, x in launch.args.items() if isinstance(x, torch.Tensor)}):
                launch.run()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_scale_that_is_not_above_0_is_refused(scale):
    scene = make_scene([(1, 9)], 1, 1, 16, 16)
    with pytest.raises(KernelError, match=f"scale={scale} must be above 0"):
        run(scene.q, scene.k, scene.v, scene.layout, **SMALL, scale=scale)


def test_what_a_chip_does_not_hold_is_refused_before_it_is_compiled():
    """Heads too wide for its shared memory, and bf16 where there is none: said by the plan, not by a compiler."""
    from kvedu.kernels.paged_attention_triton import plan_attention

    for capability, D, dtype in ((90, 320, torch.float16), (75, 64, torch.bfloat16)):
        q, pages = torch.empty(1, 2, D, dtype=dtype, device="meta"), torch.empty(4, 16, 1, D, dtype=dtype, device="meta")
        tables, rows = torch.empty(1, 4, dtype=torch.int32, device="meta"), torch.empty(1, 3, dtype=torch.int64, device="meta")
        with pytest.raises(KernelError, match=f"heads of {D} in {dtype} are not for this kernel on this chip"):
            plan_attention(q, pages, pages, tables, rows, q, chip=Chip.known(capability))


@pytest.mark.parametrize("more", [16, 4], ids=["counted by 8 in 32 bits", "counted singly in 64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_offsets_beyond_32_bits(axis, more):
    """Pages, or tokens of one page, that lie further apart than 2**31 elements. Memory that is not touched costs nothing."""
    scene = make_scene([(1, 3)], 1, 1, 16, 4 if axis else 2, dtype=torch.float16, spare=0)
    far = 2**30 + more // 2 if axis else 2**31 + more
    count = 3 * far + 64 if axis else far + 64
    layout = PagedLayout.of([[0]] if axis else [[0, 1]], [(0, 1, 3)], device=DEVICE)
    pages = []
    for x in scene.dense[0]:
        strides = (16, far, 16, 1) if axis else (far, 16, 16, 1)
        room = torch.empty(count, dtype=x.dtype, device=DEVICE).as_strided((1, 4, 1, 16) if axis else (2, 2, 1, 16), strides)
        room.copy_(x.view(room.shape))
        pages.append(room)
    law_equals_definition(run, type(scene)(scene.q, *pages, layout, scene.dense), **SMALL)


@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize("C", [4, 16], ids=["several pages a tile", "one page a tile"])
@pytest.mark.parametrize("far", [2**17, 2**17 + 4], ids=["counted by 8 in 32 bits", "counted singly in 64"])
def test_page_numbers_times_their_stride_beyond_32_bits(C, edges, far):
    """A page's number and its stride fit 32 bits each, their product does not; pages far apart, little of the memory between touched."""
    scene = make_scene([(1, 2 * C + 15)], 1, 1, 16, C, spare=0)
    count, _, _, D = scene.k.shape
    last = 2**31 // far + 8
    layout = PagedLayout((last - scene.layout.tables).to(torch.int32), scene.layout.rows)
    pages = []
    for x in (scene.k, scene.v):
        room = torch.empty((last + 1) * far, dtype=x.dtype, device=DEVICE).as_strided((last + 1, C, 1, D), (far, D, D, 1))
        room[last - count + 1 :] = x.flip(0)
        pages.append(room)
    dense = run(scene.q, scene.k, scene.v, scene.layout, **SMALL, edges=edges)
    assert torch.equal(run(scene.q, *pages, layout, **SMALL, edges=edges), dense)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows_dtype", [torch.int64, torch.int32])
def test_queries_beyond_32_bits(axis, rows_dtype):
    """Rows or heads of the queries that lie further apart than 2**30 elements, rows of a layout in either width."""
    scene = make_scene([(3, 3)], 3 if axis else 1, 1, 16, 8)
    far = 2**30 + 8
    room = torch.empty(2 * far + 64, dtype=scene.q.dtype, device=DEVICE)
    q = room.as_strided(scene.q.shape, (16, far, 1) if axis else (far, 16, 1))[: 1 if axis else 3]
    q.copy_(scene.q[: len(q)])
    layout = PagedLayout(scene.layout.tables, torch.tensor([[0, len(q), 6 - len(q)]], dtype=rows_dtype, device=DEVICE))
    dense = run(q.contiguous(), scene.k, scene.v, PagedLayout(layout.tables, layout.rows.long()), **SMALL)
    assert torch.equal(run(q, scene.k, scene.v, layout, **SMALL), dense)


@pytest.mark.parametrize("window", [None, 20])
def test_fixed_splits_give_the_same_bits_in_any_company_and_any_chunks(window):
    """C046: with ``split_tokens`` and a ``block_m`` nothing that a row does not see changes a bit of it."""
    fixed = SMALL | {"split_tokens": 32, "edges": False}
    scene = make_scene([(3, 40), (1, 70), (20, 0)], 6, 2, 16, 16)
    together = run(scene.q, scene.k, scene.v, scene.layout, window, **fixed)
    for b, (first, new, old) in enumerate(scene.layout.rows.tolist()):
        for i in range(new):
            alone = PagedLayout(scene.layout.tables[b : b + 1], torch.tensor([[0, 1, old + i]], device=DEVICE))
            one = run(scene.q[first + i : first + i + 1], scene.k, scene.v, alone, window, **fixed)
            assert torch.equal(one[0], together[first + i]), (b, i)


@pytest.fixture
def fused(monkeypatch):
    """A product less a number is rounded once, as what assemblers make of it; the interpreter alone rounds twice."""
    if DEVICE != "cpu":
        return
    from triton.runtime.interpreter import InterpreterBuilder

    times, minus = InterpreterBuilder.create_fmul, InterpreterBuilder.create_fsub

    def product(builder, a, b):
        found = times(builder, a, b)
        found.exact = a.data.astype("float64") * b.data
        return found

    def difference(builder, a, b):
        found = minus(builder, a, b)
        if hasattr(a, "exact"):
            found.data = (a.exact - b.data).astype(found.data.dtype)
        return found

    monkeypatch.setattr(InterpreterBuilder, "create_fmul", product)
    monkeypatch.setattr(InterpreterBuilder, "create_fsub", difference)


def test_a_tile_that_a_row_does_not_see_changes_no_bit(fused):
    """C046: where the maximum stays nothing shrinks, not by the rounding of a product either: it would add up, tile by tile."""
    scene = make_scene([(30, 20)], 2, 1, 16, 16, dtype=torch.float32)
    together = run(scene.q * 30, scene.k, scene.v, scene.layout, block_m=64, block_s=16, edges=False)
    for i in (0, 5, 9):
        alone = PagedLayout(scene.layout.tables, torch.tensor([[0, 1, 20 + i]], device=DEVICE))
        assert torch.equal(run(scene.q[i : i + 1] * 30, scene.k, scene.v, alone, block_m=64, block_s=16, edges=False)[0], together[i]), i


def test_nan_in_a_key_that_is_seen_shows():
    scene = make_scene([(1, 40)], 2, 1, 16, 8)
    scene.k[scene.layout.tables[0, 2], 3] = torch.nan
    assert run(scene.q, scene.k, scene.v, scene.layout).isnan().all()


@pytest.mark.parametrize(
    "change, sign",
    [
        (lambda q, k, v: (q, k, v[:, :, :1]), "do not fit: want"),
        (lambda q, k, v: (q[:, :3], k, v), "do not fit: want"),
        (lambda q, k, v: (q, k.transpose(2, 3).contiguous().transpose(2, 3), v), "last axis of k must be dense, its stride is 2"),
        (lambda q, k, v: (q.float(), k, v), "convert the queries to the pages' dtype"),
    ],
)
def test_what_the_kernel_cannot_take_is_refused(change, sign):
    scene = make_scene([(1, 4)], 4, 2, 16, 8)
    with pytest.raises(KernelError, match=sign):
        run(*change(scene.q, scene.k, scene.v), scene.layout)


@pytest.mark.parametrize(
    "change, sign",
    [
        (lambda tables, rows: (tables, torch.cat((rows, rows[:, :1]), 1)), "do not fit: want .B, J. and .B, 3."),
        (lambda tables, rows: (tables, rows[:1]), "do not fit: want .B, J. and .B, 3."),
        (lambda tables, rows: (tables.float(), rows), "tables are torch.float32; want integers"),
        (lambda tables, rows: (tables, rows.to("meta")), "rows are on meta, the queries on .*; call layout.to"),
        (lambda tables, rows: (tables.to("meta"), rows), "tables are on meta"),
        (lambda tables, rows: (tables[:0], rows[:0]), "2 rows of 0 sequences"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(change, sign):
    scene = make_scene([(1, 4), (1, 9)], 4, 2, 16, 8)
    with pytest.raises(KernelError, match=sign):
        run(scene.q, scene.k, scene.v, PagedLayout(*change(scene.layout.tables, scene.layout.rows)))


def test_splits_and_parts_that_do_not_fit_are_refused():
    from kvedu.kernels.paged_attention_triton import plan_attention

    scene = make_scene([(1, 40), (1, 9)], 4, 2, 16, 8)
    with pytest.raises(KernelError, match="splits=0: want a split or more"):
        run(scene.q, scene.k, scene.v, scene.layout, splits=0)
    with pytest.raises(KernelError, match="k is on meta"):
        run(scene.q, scene.k.to("meta"), scene.v, scene.layout)
    parts = torch.empty(2, 4, 2, 16, device=DEVICE), torch.empty(2, 4, 2, device=DEVICE)
    for some in ({"splits": 3}, {"splits": 1}, {"split_tokens": 16}):
        with pytest.raises(KernelError, match="parts .2, 4, 2, 16. and .2, 4, 2. do not fit"):
            plan_attention(scene.q, scene.k, scene.v, scene.layout.tables, scene.layout.rows, scene.q, chip=Chip(), **SMALL, parts=parts, **some)


@pytest.mark.parametrize("triton", [True, None])
def test_a_step_of_no_sequence_gives_nothing(triton):
    scene, nobody = make_scene([(1, 4)], 4, 2, 16, 8, dtype=torch.float32), PagedLayout.of([], [], device=DEVICE)
    assert paged_attention(scene.q[:0], scene.k, scene.v, nobody, triton=triton).shape == (0, 4, 16)
    assert paged_attention_reference(scene.q[:0], scene.k, scene.v, nobody).shape == (0, 4, 16)


def test_one_definition_for_both_kernels():
    """Without ``triton=True`` the CPU's own kernel or the reference answers, and all agree."""
    scene = make_scene(CHUNKS, 6, 2, 32, 16, dtype=torch.float32)
    exact = paged_attention_reference(*(x.cpu() for x in (scene.q, scene.k, scene.v)), scene.layout.to("cpu"))
    assert (run(scene.q, scene.k, scene.v, scene.layout).cpu() - exact).abs().max() < 1e-5
