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
from kvedu.kernels.launch import KernelError, missing, runs_on
from kvedu.kernels.quantized_attention import quantized_attention, quantized_attention_reference
from kvedu.kernels.quantized_pages import Exact, quantized_write, quantized_write_reference

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


@pytest.mark.parametrize("format", [integer(8, 64), integer(8, 64, symmetric=True), integer(4, 64)], ids=["zero", "symmetric", "int4"])
def test_channels_that_break_scales(format):
    """C016: all zero, all 100, a range of 1e-6: finite, zero exactly zero, 100 within 1 %."""
    made = Made(format, format, F32, counts=(1, 1), starts=(20, 5))
    for side in made.numbers:
        for x in side:
            x[:, 0], x[:, 1] = 0, 100
    made.exact = [Exact(torch.zeros_like(fresh), tails) for fresh, tails in made.exact]
    for fresh, _ in made.exact:
        fresh[:, 1] = 100
    out = there(made).write(by_triton).attend(partial(quantized_attention, triton=True, block_s=16))
    assert (out[:, :3] == 0).all() and ((out[:, 3:] - 100).abs() <= 1).all()


@pytest.mark.parametrize("dtype, tolerance", [(F32, 1e-5), (F16, 5e-3)], ids=["fp32", "fp16"])
@pytest.mark.parametrize("keys, values", [(integer(8, 64), integer(8, 64, symmetric=True)), (integer(4, 16, "tokens"), integer(4, 32)), (integer(8, 32), integer(8, 64))], ids=["whole heads", "KIVI", "groups"])  # fmt: skip
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
