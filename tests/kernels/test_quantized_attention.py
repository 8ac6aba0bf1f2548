"""Quantized pages: written natively as ``encode`` writes them, bit for bit; attended to as the definition says."""

import pytest
import torch

from kvedu.caches.formats import float8, integer, with_apart
from kvedu.errors import CacheError
from kvedu.kernels import native
from kvedu.kernels import quantized_attention as quantized_attention_module
from kvedu.kernels.quantized_attention import (
    QuantizedLayout,
    cost,
    quantized_attention,
    quantized_attention_reference,
    takes,
)
from kvedu.kernels.quantized_pages import CodedPages, Exact, quantized_write, quantized_write_reference

here = not isinstance(native.library(), native.Unavailable)
needs_native = pytest.mark.skipif(not here, reason=f"no native kernels: {native.library()} (no GPU needed)")

F32, BF16 = torch.float32, torch.bfloat16
FORMATS = {
    "int8": integer(8, 16),
    "int8, symmetric, whole head": integer(8, 64, symmetric=True),
    "int4": integer(4, 32, scale_dtype=BF16),
    "int4, symmetric": integer(4, 16, symmetric=True),
    "int4 along tokens": integer(4, 16, "tokens"),
    "int8 along tokens, symmetric": integer(8, 32, "tokens", symmetric=True),
    "int2": integer(2, 32, scale_dtype=F32),
    "int2 along tokens": integer(2, 32, "tokens"),
    "int4 along few tokens": integer(4, 4, "tokens"),
    "int4, small groups": integer(4, 4),
    "int4, 2 apart": with_apart(integer(4, 64), 2),
    "e4m3": float8("e4m3"),
    "e4m3, groups": float8("e4m3", 16),
    "e5m2": float8("e5m2"),
    "e5m2 along tokens": float8("e5m2", 16, "tokens"),
}


def attention_in_bf16(q_THD, k_SKD, v_SKD, visible_TS):
    """The same operation in plain low-precision PyTorch: products and weights rounded to bf16."""
    G = q_THD.shape[1] // k_SKD.shape[1]
    k_HSD, v_HSD = (x.bfloat16().repeat_interleave(G, 1).transpose(0, 1) for x in (k_SKD, v_SKD))
    scores_HTS = q_THD.transpose(0, 1) @ k_HSD.transpose(1, 2) / q_THD.shape[2] ** 0.5
    return (torch.softmax(scores_HTS.masked_fill(~visible_TS, -torch.inf), -1) @ v_HSD).transpose(0, 1)


class Made:
    """Pages of three sequences, their tables shuffled, everything unwritten NaN or all ones; tails and the step's own rows."""

    def __init__(self, keys, values, dtype, *, D=64, K=2, C=32, residual=0, counts=(1, 3, 40), starts=(70, 0, 37), seed=0):
        generator = torch.Generator().manual_seed(seed)
        unit = max(keys.step, values.step)
        totals = [a + b for a, b in zip(starts, counts)]
        W = residual + unit - 1
        pages = torch.randperm(2 + sum(-(-t // C) for t in totals), generator=generator).tolist()
        tables = [[pages.pop() for _ in range(-(-t // C))] for t in totals]
        apart = torch.stack([torch.randperm(D, generator=generator)[:2].sort().values for _ in range(K)])
        device = torch.device("cpu")
        self.sides = [
            CodedPages(f, len(pages) + sum(map(len, tables)), C, K, D, device, apart if f.apart else None) for f in (keys, values)
        ]
        for side in self.sides:
            for x in side.tensors:
                x.fill_(255 if x.dtype is torch.uint8 else torch.nan)
        self.numbers = [[(torch.randn(t, K, D, generator=generator) * 3).to(dtype) for t in totals] for _ in "kv"]
        self.exact = []
        for numbers in self.numbers:
            tails = torch.full((len(starts) + 1, W, K, D), torch.nan, dtype=dtype)
            for slot, (x, start) in enumerate(zip(numbers, starts)):
                for t in range(max(0, start - W), start):
                    tails[slot + 1, t % W] = x[t]
            fresh = torch.cat([x[start:] for x, start in zip(numbers, starts)])
            self.exact.append(Exact(fresh, tails))
        firsts = [sum(counts[:i]) for i in range(len(counts))]
        rows = [[f, n, s, i + 1] for i, (f, n, s) in enumerate(zip(firsts, counts, starts))]
        longest = max(map(len, tables))
        padded = torch.tensor([t + [0] * (longest - len(t)) for t in tables], dtype=torch.int32)
        self.layout = QuantizedLayout(padded, torch.tensor(rows), residual, unit, set(counts) == {1})
        self.tables, self.totals, self.starts, self.dtype = tables, totals, starts, dtype
        self.q_NHD = torch.randn(sum(counts), 3 * K, D, generator=generator).to(dtype)

    def units(self, side, b, start, stop):
        """Complete units of a sequence that end in start + 1 .. stop."""
        step = side.format.step
        return [[side.unit_at(self.tables[b], u * step), b, u * step] for u in range(start // step, stop // step)]

    def write(self, how):
        """What came earlier from the whole sequence, then what this step completes, from tails and fresh rows."""
        for side, exact, numbers in zip(self.sides, self.exact, self.numbers):
            for b, start in enumerate(self.starts):
                old = Exact(numbers[b], exact.tails[:, :0])
                row = torch.tensor([[0, self.totals[b], 0, 0]])
                units = [[at, 0, token] for at, _, token in self.units(side, b, 0, start)]
                if units:
                    how(side, old, row, torch.tensor(units))
            new = [u for b, (start, total) in enumerate(zip(self.starts, self.totals)) for u in self.units(side, b, start, total)]
            if new:
                how(side, exact, self.layout.rows, torch.tensor(new))
        return self

    def attend(self, how, window=None):
        return how(self.q_NHD, *self.sides, *self.exact, self.layout, window)


@needs_native
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_written_as_encode_writes(name, dtype):
    """Codes, scales, zero points and channels apart, to the last bit; nothing is written to where it does not belong."""
    format = FORMATS[name]
    for scale in (1.0, 1e-6, 3e4, 1e20):
        a, b = (Made(format, format, dtype) for _ in "ab")
        for made in (a, b):
            made.numbers = [[x * scale for x in side] for side in made.numbers]
            made.exact = [Exact(fresh * scale, tails * scale) for fresh, tails in made.exact]
            made.numbers[0][0][:, 0, :] = 0
            made.numbers[1][2][:, 1, 3] = 100
        a.write(quantized_write), b.write(quantized_write_reference)
        for x, y in zip(a.sides, b.sides):
            for got, wanted in zip(x.tensors, y.tensors):
                assert torch.equal(got.view(torch.uint8), wanted.view(torch.uint8)), (name, scale)


@needs_native
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("residual, window", [(0, None), (5, None), (32, None), (0, 50), (9, 20)])
def test_the_kernel_is_the_definition(name, dtype, residual, window, monkeypatch):
    """A lone decode, a prompt from scratch and a chunk after a prefix, in one step, over shuffled pages."""
    made = Made(FORMATS[name], FORMATS["int8"], dtype, residual=residual).write(quantized_write)
    assert takes(made.q_NHD, *made.exact)
    got, wanted = made.attend(quantized_attention, window), made.attend(quantized_attention_reference, window)
    if dtype is F32:
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        return
    monkeypatch.setattr(quantized_attention_module, "attention_reference", attention_in_bf16)
    plain = made.attend(quantized_attention_reference, window)
    monkeypatch.undo()
    made.q_NHD, made.exact = made.q_NHD.float(), [Exact(*(x.float() for x in exact)) for exact in made.exact]
    true = made.attend(quantized_attention_reference, window)
    lost, allowed = ((x.float() - true).abs().max() for x in (got, plain))
    assert lost <= 2 * allowed


@needs_native
@pytest.mark.parametrize("D, H_per_K, C", [(8, 1, 4), (20, 3, 12), (40, 2, 16), (64, 3, 96), (80, 1, 4), (128, 3, 16)])
@pytest.mark.parametrize("along", ["head", "tokens"])
def test_odd_sizes(D, H_per_K, C, along):
    """Heads and pages that fill no register, values along the tokens too."""
    for keys, values in ((integer(4, 4, along), integer(2, 4)), (integer(8, 4), integer(8, 4, along, symmetric=True))):
        made = Made(keys, values, F32, D=D, C=C, residual=3, counts=(7, 1, 9), starts=(0, 67, 13)).write(quantized_write)
        made.q_NHD = made.q_NHD[:, : 2 * H_per_K].contiguous()
        torch.testing.assert_close(
            made.attend(quantized_attention), made.attend(quantized_attention_reference), rtol=1e-4, atol=1e-5
        )


@needs_native
@pytest.mark.parametrize("name", ["int8", "int4 along tokens", "e4m3"])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_bits_do_not_depend_on_company_or_chunks(name, dtype):
    """Each query's output, alone in a step or among others, its prompt cut anywhere: not a bit differs."""
    keys, values = FORMATS[name], FORMATS["int8"]
    whole = Made(keys, values, dtype, residual=7, counts=(100,), starts=(0,)).write(quantized_write)
    out = whole.attend(quantized_attention)
    for start in (1, 37, 64, 99):
        part = Made(keys, values, dtype, residual=7, counts=(100 - start,), starts=(start,)).write(quantized_write)
        assert all(torch.equal(a, b) for a, b in zip(part.numbers[0], whole.numbers[0]))
        part.q_NHD = whole.q_NHD[start:].contiguous()
        assert torch.equal(part.attend(quantized_attention), out[start:])
    both = Made(keys, values, dtype, residual=7).write(quantized_write)
    together = both.attend(quantized_attention)
    for b, (first, new, start, slot) in enumerate(both.layout.rows.tolist()):
        alone = QuantizedLayout(both.layout.tables[b : b + 1], torch.tensor([[0, new, start, slot]]), 7, both.layout.unit)
        exact = [Exact(e.fresh[first : first + new], e.tails) for e in both.exact]
        got = quantized_attention(both.q_NHD[first : first + new], *both.sides, *exact, alone)
        assert torch.equal(got, together[first : first + new])


@needs_native
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("window", [None, 1100])
def test_a_long_sequence_worked_on_in_parts_gives_the_same_bits(dtype, window):
    """Alone, its parts go to several threads and are folded together; among many, one thread does it all."""
    starts = (3000, 1023, 1024, 2047, 5, 1025, 900, 2500, 100)
    made = Made(FORMATS["int8"], FORMATS["int4"], dtype, residual=3, counts=(2,) * 9, starts=starts).write(quantized_write)
    together = made.attend(quantized_attention, window)
    if dtype is F32:
        torch.testing.assert_close(together, made.attend(quantized_attention_reference, window), rtol=1e-4, atol=1e-5)
    for b, (first, new, start, slot) in enumerate(made.layout.rows.tolist()):
        alone = QuantizedLayout(made.layout.tables[b : b + 1], torch.tensor([[0, new, start, slot]]), 3, made.layout.unit)
        exact = [Exact(e.fresh[first : first + new], e.tails) for e in made.exact]
        got = quantized_attention(made.q_NHD[first : first + new], *made.sides, *exact, alone, window)
        assert torch.equal(got, together[first : first + new])


def test_the_border_between_codes_and_the_tail():
    """A query with i tokens before it sees all but the last ``residual`` as codes, in whole units."""
    before = torch.tensor([0, 4, 5, 8, 9, 13])
    assert QuantizedLayout(None, None, residual=5, unit=4).coded(before).tolist() == [0, 0, 0, 0, 4, 8]
    assert QuantizedLayout(None, None).coded(before).tolist() == before.tolist()


def test_a_query_sees_its_own_key_as_it_came():
    """Even where nothing is kept: two bits would turn the sharpest of attention to itself into something else."""
    made = Made(integer(2, 64), integer(2, 64), F32, counts=(1,), starts=(0,)).write(quantized_write_reference)
    torch.testing.assert_close(made.attend(quantized_attention_reference)[0, 0], made.numbers[1][0][0, 0])


def test_pages_hold_whole_groups():
    with pytest.raises(CacheError, match="pages of 16 tokens hold no whole groups of 32.*multiple of 32"):
        CodedPages(integer(4, 32, "tokens"), 2, 16, 1, 8, torch.device("cpu"))


def test_cost():
    """Fewer bits, fewer bytes; and what turning codes into numbers adds."""
    eight, sixteen = cost(4096, 9, 3, 64, 8.5, 8.5), cost(4096, 9, 3, 64, 16, 16)
    assert eight.read == 4096 * 3 * 64 * 17 / 8 and sixteen.read == 4096 * 3 * 64 * 4
    assert eight.flops == sixteen.flops == 4096 * (4 * 64 * 9 + 4 * 3 * 64)
