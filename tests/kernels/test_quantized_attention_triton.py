"""Quantized pages in Triton: coded as ``encode`` codes, bit for bit; attended to as the definition says."""

from copy import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from scenes import DEVICE
from test_quantized_attention import FORMATS, Made

from kvedu.caches.formats import float8, integer
from kvedu.kernels import quantized_attention as quantized_attention_module
from kvedu.kernels.attention import attention_grouped
from kvedu.kernels.launch import Chip, KernelError, interpreted, missing, runs_on
from kvedu.kernels.quantized_attention import quantized_attention, quantized_attention_reference, takes
from kvedu.kernels.quantized_pages import CodedPages, Exact, quantized_write, quantized_write_reference
from kvedu.kernels.watch import watching

pytestmark = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")
F32, F16 = torch.float32, torch.float16
WHOLE = {"int8, whole head, zero": integer(8, 64), "int4, whole head": integer(4, 64), "e4m3, whole head": float8("e4m3", 64)}
KEPT = WHOLE | {
    name: replace(f, scale_dtype=F16) if f.scale_dtype is torch.bfloat16 else f for name, f in FORMATS.items() if not f.apart
}
WIDE = {
    "int4, a head of 128": integer(4, 128),
    "int4, symmetric, a head of 128": integer(4, 128, symmetric=True),
    "int2, a head of 256": integer(2, 256),
}


def by_triton(pages, exact, rows, units):
    """The kernel, where the pages are."""
    quantized_write(pages, exact, rows.to(DEVICE), units.to(DEVICE), triton=True)


def there(made):
    """The same step where the kernels run; itself, where that is the CPU."""
    if DEVICE == "cpu":
        return made
    moved = copy(made)
    moved.sides = [copy(side) for side in made.sides]
    for side in moved.sides:
        side.coded = type(side.coded)(*(x if x is None else x.to(DEVICE) for x in side.coded))
    moved.exact = [Exact(*(x.to(DEVICE) for x in side)) for side in made.exact]
    moved.numbers = [[x.to(DEVICE) for x in side] for side in made.numbers]
    moved.layout = replace(made.layout, tables=made.layout.tables.to(DEVICE), rows=made.layout.rows.to(DEVICE))
    moved.q_NHD = made.q_NHD.to(DEVICE)
    return moved


def here(made, moved):
    """``made`` with the codes that ``moved`` has."""
    for side, other in zip(made.sides, moved.sides):
        for x, y in zip(side.tensors, other.tensors):
            x.copy_(y)
    return made


SMALL = dict(counts=(1, 3, 9), starts=(38, 0, 23))


@pytest.mark.parametrize("name", KEPT)
def test_coded_as_encode_codes(name):
    """Codes, scales and zero points to the last bit, at ordinary sizes and where fp16 scales lose and overflow (C016, C019).

    Whole groups are scaled by 1, 1e-6, 1e20 and 3e4 in turn: tokens, or channels where a group lies along the tokens.
    """
    format = KEPT[name]
    a, b = (Made(format, format, F32, counts=(2, 1), starts=(31, 0), residual=2) for _ in "ab")
    sizes = torch.tensor([1.0, 1e-6, 1e20, 3e4])
    for made in (a, b):
        if format.step == 1:
            made.numbers = [[x * sizes[torch.arange(len(x)) % 4, None, None] for x in side] for side in made.numbers]
            made.exact = [Exact(fresh * 1e20, tails * 1e-6) for fresh, tails in made.exact]
        else:
            by_channel = sizes[torch.arange(64) % 4]
            made.numbers = [[x * by_channel for x in side] for side in made.numbers]
            made.exact = [Exact(fresh * by_channel, tails * by_channel) for fresh, tails in made.exact]
        made.numbers[0][0][:, 0, :] = 0
        made.numbers[1][0][:, 1, 3] = 100
    a = there(a)
    a.write(by_triton), b.write(quantized_write_reference)
    for x, y in zip(a.sides, b.sides):
        for got, wanted in zip(x.tensors, y.tensors):
            assert torch.equal(got.cpu().view(torch.uint8), wanted.view(torch.uint8)), name


def in_fp16(q_THD, k_SKD, v_SKD, visible_TS):
    """The same operation in plain PyTorch of the queries' precision."""
    k_BKSD, v_BKSD = (x.to(q_THD.dtype).transpose(0, 1)[None] for x in (k_SKD, v_SKD))
    return attention_grouped(q_THD[None], k_BKSD, v_BKSD, visible_TS[None])[0]


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("window, splits, residual", [(None, 1, 0), (20, 2, 5)])
def test_fp32_is_the_definition(name, window, splits, residual):
    """A lone decode, a prompt and a chunk after a prefix in one step, keys in one format and values in another."""
    made = Made(KEPT[name], KEPT["int8"], F32, residual=residual, **SMALL).write(quantized_write_reference)
    how = partial(quantized_attention, triton=True, block_m=16, block_s=16, splits=splits)
    torch.testing.assert_close(there(made).attend(how, window).cpu(), made.attend(quantized_attention_reference, window), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("format", [integer(8, 256), float8("e4m3", 256), *WIDE.values()], ids=["int8", "e4m3", *WIDE])
def test_wide_heads(format):
    made = Made(format, format, F32, D=format.group, K=1, counts=(1, 4), starts=(35, 0))
    moved = there(made).write(by_triton)
    how = partial(quantized_attention, triton=True)
    torch.testing.assert_close(moved.attend(how).cpu(), here(made, moved).attend(quantized_attention_reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", KEPT | WIDE)
def test_fp16_is_within_twice_the_plain_error(name, monkeypatch):
    """Decode of three sequences, keys and values in one format; error against fp32 over what codes stand for."""
    format = (KEPT | WIDE)[name]
    made = Made(format, format, F16, D=format.group if name in WIDE else 64, residual=1, counts=(1, 1, 1), starts=(38, 0, 23)).write(quantized_write_reference)
    got = there(made).attend(partial(quantized_attention, triton=True, block_m=16, block_s=32)).float().cpu()
    plain_q = made.q_NHD
    made.q_NHD, made.exact = plain_q.float(), [Exact(*(x.float() for x in side)) for side in made.exact]
    exact = made.attend(quantized_attention_reference)
    monkeypatch.setattr(quantized_attention_module, "attention_reference", lambda q, *rest: in_fp16(q.half(), *rest).float())
    plain = made.attend(quantized_attention_reference)
    assert (got - exact).abs().max() <= 2 * (plain - exact).abs().max()


HARD = ["zeros", "all 100", "a range of 1e-6", "tens of thousands", "ordinary"]


def hard(x_TKD, along):
    """Numbers that break scales, and which kind each is: channels of every kind in turn, or (along the head) tokens."""
    T, _, D = x_TKD.shape
    spread = torch.rand(x_TKD.shape, generator=torch.Generator().manual_seed(T))
    kinds = torch.stack((spread * 0, spread * 0 + 100, 1 + spread * 1e-6, (spread - 0.5) * 6e4, x_TKD / 3))
    one_axis = torch.arange(D)[None, None] if along == "tokens" else torch.arange(T)[:, None, None]
    kind_TKD = (one_axis % len(HARD)).expand(x_TKD.shape)
    return kinds.gather(0, kind_TKD[None])[0], kind_TKD


@pytest.mark.parametrize("along", ["head", "tokens"])
@pytest.mark.parametrize("bits, symmetric", [(8, False), (8, True), (4, False), (4, True)])
def test_channels_that_break_scales(bits, symmetric, along):
    """C016, a scale for each token and for each channel: finite, zero exactly zero, 100 within 1 %, all within half a scale."""
    format = integer(bits, 16 if along == "tokens" else 64, along, symmetric=symmetric)
    made = Made(format, format, F32, counts=(1, 1), starts=(32, 5))
    made.numbers = [[hard(x, along)[0] for x in side] for side in made.numbers]
    made.exact = [Exact(torch.ones_like(fresh), torch.zeros_like(tails)) for fresh, tails in made.exact]
    moved = there(made).write(by_triton)
    here(made, moved)
    for side, numbers in zip(made.sides, made.numbers):
        read_TKD, wanted_TKD, kind_TKD = side.read(made.tables[0], 32, F32), numbers[0][:32], hard(numbers[0], along)[1][:32]
        units = [side.unit_at(made.tables[0], t) for t in range(32)]
        scale_TKD = side.coded.scale.flatten(0, 1)[units].float().expand(32, 2, 64)
        assert read_TKD.isfinite().all() and (read_TKD[kind_TKD == HARD.index("zeros")] == 0).all()
        assert ((read_TKD[kind_TKD == HARD.index("all 100")] - 100).abs() <= 1).all()
        assert ((read_TKD - wanted_TKD).abs() <= 0.5001 * scale_TKD + 1e-6 * wanted_TKD.abs()).all()
    out = moved.attend(partial(quantized_attention, triton=True, block_s=16)).cpu()
    assert out.isfinite().all()
    torch.testing.assert_close(out, made.attend(quantized_attention_reference), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("by_words", [True, False])
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("size", [1e-6, 1e-4, 3e3])
def test_values_of_any_size_survive_fp16(size, name, by_words, monkeypatch):
    """Weights times small scales would be nothing in fp16; with large ones nothing overflows. Keys are ordinary."""
    made = Made(WHOLE[name], WHOLE[name], F16, residual=1, counts=(1, 1, 1), starts=(38, 0, 23))
    made.numbers[1] = [x * size for x in made.numbers[1]]
    made.exact[1] = Exact(*(x * size for x in made.exact[1]))
    made.write(quantized_write_reference)
    got = there(made).attend(partial(quantized_attention, triton=True, block_m=16, block_s=32, by_words=by_words)).float().cpu()
    made.q_NHD, made.exact = made.q_NHD.float(), [Exact(*(x.float() for x in side)) for side in made.exact]
    exact = made.attend(quantized_attention_reference)
    monkeypatch.setattr(quantized_attention_module, "attention_reference", lambda q, *rest: in_fp16(q.half(), *rest).float())
    plain = made.attend(quantized_attention_reference)
    assert (got - exact).abs().max() <= 2 * (plain - exact).abs().max()


ODD = {
    "int8, 48": integer(8, 48), "int8 in groups, 48": integer(8, 16), "e4m3, 48": float8("e4m3"), "e5m2 in one, 48": float8("e5m2", 48),
    "int4, 80": integer(4, 80), "int4 in groups, 80": integer(4, 40), "int2, 80": integer(2, 80), "e4m3 in groups, 80": float8("e4m3", 16),
    "int4 along tokens, 48": integer(4, 16, "tokens"),
}  # fmt: skip


@pytest.mark.parametrize("by_words", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_a_head_that_is_no_power_of_two(name, by_words):
    """C093: tiles are wider than heads. What lies past the last coded one, NaN where the format has it, does not get in."""
    format, D = ODD[name], int(name.split()[-1])
    made = Made(format, format, F32, D=D, K=1, counts=(1, 1), starts=(35, 16))
    moved = there(made).write(by_triton)
    for side in moved.sides:
        for b, start in enumerate(made.starts):
            for at, *_ in made.units(side, b, start // format.step * format.step, 32 * len(made.tables[b])):
                for x in side.tensors:
                    x.flatten(0, 1)[at] = 255 if x.dtype is torch.uint8 else torch.nan
    got = moved.attend(partial(quantized_attention, triton=True, by_words=by_words, block_s=16)).cpu()
    torch.testing.assert_close(got, here(made, moved).attend(quantized_attention_reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("by_words", [True, False])
@pytest.mark.parametrize(
    "keys, values, C, start",
    [(integer(8, 64), integer(8, 64), 4, 6), (integer(4, 16, "tokens"), integer(4, 32), 16, 33)],
    ids=["whole heads", "KIVI"],
)
def test_offsets_beyond_32_bits(keys, values, C, start, by_words):
    """Pages 2**27 bytes apart, the first of them the 33rd: strides fit 32 bits, offsets do not. Memory that is not touched costs nothing."""
    made = Made(keys, values, F32, K=1, C=C, counts=(1,), starts=(start,)).write(quantized_write_reference)
    moved, before, apart = there(made), 32, 2**27
    for side in moved.sides:
        spread, count = [], before + len(side.coded.codes)
        room = torch.empty(count * apart, dtype=torch.uint8, device=DEVICE)
        for i, x in enumerate(side.coded):
            if x is not None:
                strides = (apart // x.dtype.itemsize, apart // side.units // x.dtype.itemsize, *x.stride()[2:])
                far = room.view(x.dtype).as_strided((count, *x.shape[1:]), strides, 2**12 * i)
                far[before:] = x
            spread.append(None if x is None else far)
        side.coded = type(side.coded)(*spread)
    moved.layout = replace(moved.layout, tables=moved.layout.tables + before)
    got = moved.attend(partial(quantized_attention, triton=True, by_words=by_words, block_s=16)).cpu()
    torch.testing.assert_close(got, made.attend(quantized_attention_reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [(F32, 1e-5), (F16, 5e-3)], ids=["fp32", "fp16"])
@pytest.mark.parametrize("keys, values", [(integer(8, 64), integer(8, 64, symmetric=True)), (integer(4, 16, "tokens"), integer(4, 32)), (integer(8, 32), integer(8, 64)), (float8(), float8()), (float8("e4m3", 64), float8("e5m2", 64)), (float8("e5m2"), integer(8, 64)), (float8("e4m3", 16, "tokens"), float8("e5m2", 32))], ids=["whole heads", "KIVI", "groups", "e4m3", "floats, whole heads", "e5m2 and int8", "floats in groups"])  # fmt: skip
def test_by_words_and_code_by_code(keys, values, dtype, tolerance):
    """Two ways of reading the same bytes, pages of 16, a window, three splits; nothing that was not written gets in."""
    made = there(Made(keys, values, dtype, C=16, residual=3, counts=(1, 1, 1), starts=(70, 0, 37)).write(quantized_write_reference))
    how = partial(quantized_attention, triton=True, block_s=32, splits=3)
    for window in (None, 40):
        words, codes = (made.attend(partial(how, by_words=by_words), window) for by_words in (True, False))
        torch.testing.assert_close(words, codes, rtol=tolerance, atol=tolerance)


def test_what_the_kernel_does_not_read_is_refused():
    for format, sign in ((FORMATS["int4, 2 apart"], "set apart"), (FORMATS["int4"], "bf16")):
        made = there(Made(format, format, F32, counts=(1,), starts=(3,)))
        with pytest.raises(KernelError, match=sign):
            made.attend(partial(quantized_attention, triton=True))
        with pytest.raises(KernelError, match=sign):
            made.write(by_triton)


def test_what_does_not_fit_is_refused():
    """Each of these had read memory that was not its own, or had given numbers of no meaning."""
    made = there(Made(WHOLE["int8, whole head, zero"], integer(8, 64), F32, residual=2, counts=(1, 1), starts=(35, 3)))
    attend, (keys, values), (k, v), layout = partial(quantized_attention, triton=True), made.sides, made.exact, made.layout
    other = {
        "heads of 128": Made(integer(8, 128), integer(8, 128), F32, D=128), "4 heads": Made(integer(8, 64), integer(8, 64), F32, K=4),
        "16 tokens": Made(integer(8, 64), integer(8, 64), F32, C=16),
    }  # fmt: skip
    for name, wrong in other.items():
        with pytest.raises(KernelError, match=f"pages of values hold .*{name.split()[-1]}.*want 32 tokens, 2 heads of 64"):
            attend(made.q_NHD, keys, there(wrong).sides[1], k, v, layout)
    for rows in (layout.rows[:, :3].contiguous(), layout.rows[:1], layout.rows.int()):
        with pytest.raises(KernelError, match="want .* .B, 4. in torch.int64"):
            attend(made.q_NHD, keys, values, k, v, replace(layout, rows=rows))
    for wrong in (Exact(v.fresh[:1], v.tails), Exact(v.fresh[..., :48], v.tails), Exact(v.fresh, v.tails[:, :1]), Exact(v.fresh, v.tails[:, :, :1])):
        with pytest.raises(KernelError, match="the same of both"):
            attend(made.q_NHD, keys, values, k, wrong, layout)
    with pytest.raises(KernelError, match="want .2, K, 64."):
        attend(made.q_NHD, keys, values, Exact(k.fresh[:1], k.tails), Exact(v.fresh[:1], v.tails), layout)
    for wrong in (Exact(v.fresh.to("meta"), v.tails), Exact(v.fresh, v.tails.to("meta"))):
        with pytest.raises(KernelError, match="is on meta, q on .*; move one of them"):
            attend(made.q_NHD, keys, values, k, wrong, layout)
    elsewhere = copy(values)
    elsewhere.coded = type(values.coded)(*(x if x is None else x.to("meta") for x in values.coded))
    with pytest.raises(KernelError, match="pages of values are on meta, q on .*; move one of them"):
        attend(made.q_NHD, keys, elsewhere, k, v, layout)


def test_what_does_not_fit_is_not_written():
    """Refused before a byte is written."""
    made = there(Made(integer(8, 64), integer(8, 64), F32, residual=2, counts=(1, 1), starts=(35, 3)))
    pages, (fresh, tails) = made.sides[0], made.exact[0]
    rows, units = torch.zeros(2, 4, dtype=torch.int64, device=DEVICE), torch.zeros(2, 3, dtype=torch.int64, device=DEVICE)
    write, before = partial(quantized_write, triton=True), [x.clone() for x in pages.tensors]
    for exact, where, sign in (
        (Exact(fresh[:, :1], tails[:, :, :1]), (rows, units), "want 1 heads of 64 in both"),
        (Exact(fresh[..., :48], tails[..., :48]), (rows, units), "want 2 heads of 48 in both"),
        (Exact(fresh, tails[..., :48]), (rows, units), "want 2 heads of 64 in both"),
        (Exact(fresh, tails), (rows[:, :3], units), "want .N, K, D., .B, 4. and .M, 3."),
        (Exact(fresh, tails), (rows, units[:, :2]), "want .N, K, D., .B, 4. and .M, 3."),
        (Exact(fresh, tails), (rows.to("meta"), units), "rows are on meta"),
        (Exact(fresh, tails.to("meta")), (rows, units), "tails are on meta"),
        (Exact(fresh.transpose(1, 2).contiguous().transpose(1, 2), tails), (rows, units), "fresh must be dense"),
    ):  # fmt: skip
        with pytest.raises(KernelError, match=sign):
            write(pages, exact, *where)
    assert all(torch.equal(x.view(torch.uint8), y.view(torch.uint8)) for x, y in zip(pages.tensors, before))


@pytest.mark.parametrize("by_words", [True, False])
@pytest.mark.parametrize("name", WHOLE)
def test_values_that_are_all_zero(name, by_words):
    """A tile whose values have no scale to be counted in, before one that has and after it."""
    made = Made(WHOLE[name], WHOLE[name], F32, counts=(1,), starts=(60,))
    for x in (made.numbers[1][0][:16], made.numbers[1][0][32:48]):
        x.zero_()
    made.write(quantized_write_reference)
    got = there(made).attend(partial(quantized_attention, triton=True, block_m=16, block_s=16, splits=1, by_words=by_words)).cpu()
    torch.testing.assert_close(got, made.attend(quantized_attention_reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [23, 24, 25])
def test_a_window_that_begins_at_the_border_of_a_tile(width):
    """The first key that is seen is the first of a tile, or the last, or the last but one: its tile is not left out."""
    made = Made(integer(8, 64), integer(8, 64), F32, counts=(1,), starts=(38,)).write(quantized_write_reference)
    got = there(made).attend(partial(quantized_attention, triton=True, block_m=16, block_s=16, splits=1), width).cpu()
    torch.testing.assert_close(got, made.attend(quantized_attention_reference, width), rtol=1e-4, atol=1e-5)


def test_places_are_near_only_if_all_are():
    """Keys of 2 bits beside values of 8: a place of the larger side decides."""
    from kvedu.kernels.coded_step import near

    def pages(format, count):
        return CodedPages(format, count, 16, 8, 64, torch.device("meta"))

    small, large = pages(integer(2, 64), 2**18 - 1), pages(integer(8, 64), 2**18)
    assert near(small) and near(small, pages(integer(8, 64), 2**18 - 1)) and not near(small, large) and not near(large, small)


@pytest.mark.skipif(not interpreted(), reason="accesses are seen in Triton's interpreter")
@pytest.mark.parametrize("by_words", [True, False])
@pytest.mark.parametrize("name", [*WHOLE, "int4 along tokens", "e5m2"])
def test_nothing_is_read_beside_the_tensors(name, by_words):
    """C094: page numbers and scales come tiles ahead, and tables end with the last page."""
    from kvedu.kernels.quantized_attention_triton import plan_quantized_attention

    made = Made(KEPT[name], WHOLE.get(name, integer(8, 64)), F32, K=1, C=16, counts=(3, 1), starts=(13, 38)).write(quantized_write_reference)
    out, layout = torch.empty_like(made.q_NHD), made.layout
    planned = plan_quantized_attention(
        made.q_NHD, *made.sides, *made.exact, layout.tables, layout.rows, out, chip=Chip(), unit=layout.unit, block_m=16, block_s=16, by_words=by_words, splits=2,
    )  # fmt: skip
    for launch in planned:
        with watching(strict=True, **{name: x for name, x in launch.args.items() if isinstance(x, torch.Tensor)}):
            launch.run()
    torch.testing.assert_close(out, made.attend(quantized_attention_reference), rtol=1e-4, atol=1e-5)


def test_tables_without_a_page():
    """All tokens are young enough to be seen as they came, so that nobody needs a page yet: no tile is cut."""
    made = Made(integer(8, 64), integer(8, 64), F32, residual=40, counts=(1, 2), starts=(3, 7))
    made.layout = replace(made.layout, tables=made.layout.tables[:, :0])
    got = there(made).attend(partial(quantized_attention, triton=True)).cpu()
    torch.testing.assert_close(got, made.attend(quantized_attention_reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("triton", [True, False])
def test_a_step_of_nothing_gives_nothing(triton):
    made = Made(integer(8, 64), integer(8, 64), F32, counts=(1,), starts=(3,)).write(quantized_write_reference)
    made = there(made) if triton else made
    none = replace(made.layout, tables=made.layout.tables[:0], rows=made.layout.rows[:0])
    empty = [Exact(fresh[:0], tails) for fresh, tails in made.exact]
    assert quantized_attention(made.q_NHD[:0], *made.sides, *empty, none, triton=triton).shape == (0, 6, 64)


def test_products_are_asked_for_in_a_way_that_every_chip_has():
    """"tf32" is refused by Triton on most of AMD's chips, even where both sides have 16 bits and it would mean nothing."""
    from kvedu.kernels.quantized_attention_triton import plan_quantized_attention

    for dtype in (F16, F32):
        made = there(Made(integer(8, 64), integer(8, 64), dtype, counts=(1,), starts=(3,)))
        planned = plan_quantized_attention(made.q_NHD, *made.sides, *made.exact, made.layout.tables, made.layout.rows, made.q_NHD, chip=Chip())
        assert planned[0].constants["PRECISION"] == "ieee"


def test_long_chunks_go_through_pytorch_where_products_have_no_tensor_cores(monkeypatch):
    """On capability 7.5, as ``paged_attention`` does: 64 rows are taken, 65 not; elsewhere both."""
    monkeypatch.setattr(quantized_attention_module, "triton_wanted", lambda choice, x: True)
    sides = Made(integer(8, 64), integer(8, 64), F16, counts=(1,), starts=(3,)).sides
    for capability, longer in ((75, False), (80, True)):
        monkeypatch.setattr(quantized_attention_module, "chip_of", lambda x: Chip.known(capability))
        for N, taken in ((64, True), (65, longer)):
            q, fresh, tails = (torch.empty(shape, dtype=F16, device="meta") for shape in ((N, 6, 64), (N, 2, 64), (2, 0, 2, 64)))
            exact = Exact(fresh, tails)
            assert takes(q, exact, exact, *sides) == taken
