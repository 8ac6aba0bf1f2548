"""The paged kernel against its definition: odd sizes, every branch, unused memory full of NaN."""

import pytest
import torch

from kvedu.kernels import native
from kvedu.kernels.attention import attention_grouped, visible_causal
from kvedu.kernels.invariant import invariant_attention
from kvedu.kernels.launch import KernelError
from kvedu.kernels.paged_attention import PagedLayout, paged_attention, paged_attention_reference, paged_write

pytestmark = pytest.mark.skipif(
    isinstance(native.library(), native.Unavailable), reason=f"no native kernels: {native.library()} (no GPU needed)"
)


def scene(spec, H, K, D, C, seed=0, long_pages=False, dtype=torch.bfloat16):
    """Sequences of (new, committed) tokens in shuffled pages of a pool that is otherwise NaN."""
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-(new + old) // C) for new, old in spec]
    order = torch.randperm(sum(needed) + 3, generator=generator).tolist()
    shape = (len(order), K, C, D) if long_pages else (len(order), C, K, D)
    k, v = (torch.full(shape, torch.nan, dtype=dtype) for _ in "kv")
    k, v = (x.transpose(1, 2) if long_pages else x for x in (k, v))
    tables, rows, first, dense = [], [], 0, []
    for (new, old), n in zip(spec, needed):
        tables.append([order.pop() for _ in range(n)])
        rows.append((first, new, old))
        first += new
        k_SKD, v_SKD = (torch.randn(old + new, K, D, generator=generator).to(dtype) for _ in "kv")
        slots = torch.tensor([tables[-1][t // C] * C + t % C for t in range(old + new)])
        paged_write(k_SKD, v_SKD, k, v, slots)
        dense.append((k_SKD, v_SKD))
    q = torch.randn(first, H, D, generator=generator).to(dtype)
    return q, k, v, PagedLayout.of(tables, rows), dense


SPECS = {
    "decode": [(1, 0), (1, 1), (1, 63), (1, 64), (1, 65), (1, 300)],
    "prompts": [(1, 0), (5, 0), (64, 0), (65, 0), (200, 0)],
    "chunks": [(3, 61), (64, 64), (33, 100), (1, 127)],
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("H, K, D, C", [(9, 3, 64, 16), (4, 4, 16, 1), (8, 1, 80, 4), (6, 2, 128, 64), (5, 5, 34, 7), (200, 2, 8, 3)])
@pytest.mark.parametrize("window", [None, 1, 20, 64])
def test_equals_the_definition(spec, H, K, D, C, window):
    """Error against fp32 at most twice that of plain bf16 attention."""
    q, k, v, layout, dense = scene(spec, H, K, D, C)
    got = paged_attention(q, k, v, layout, window).float()
    exact = paged_attention_reference(q.float(), k.float(), v.float(), layout, window)
    plain = []
    for (first, new, old), (k_SKD, v_SKD) in zip(layout.rows.tolist(), dense):
        positions = torch.arange(old + new)
        seen = visible_causal(positions[old:], positions, window)[None]
        plain.append(attention_grouped(q[first : first + new][None], k_SKD.transpose(0, 1)[None], v_SKD.transpose(0, 1)[None], seen)[0])
    limit = 2 * (torch.cat(plain).float() - exact).abs().max().item()
    assert (got - exact).abs().max().item() <= limit


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("H, K, D, C", [(9, 3, 64, 16), (4, 4, 16, 1), (8, 1, 80, 4), (5, 5, 34, 7)])
@pytest.mark.parametrize("window", [None, 20])
def test_equals_the_definition_in_fp32(spec, H, K, D, C, window):
    q, k, v, layout, _ = scene(spec, H, K, D, C, dtype=torch.float32)
    exact = paged_attention_reference(q, k, v, layout, window)
    assert (paged_attention(q, k, v, layout, window) - exact).abs().max() < 3e-6


def test_a_static_cache_is_one_long_page():
    q, k, v, layout, _ = scene([(4, 60), (1, 9)], 9, 3, 64, 70, long_pages=True)
    assert k.stride(1) == 64 and k.stride(2) == 70 * 64
    exact = paged_attention_reference(q.float(), k.float(), v.float(), layout)
    assert (paged_attention(q, k, v, layout).float() - exact).abs().max() < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk", [1, 7, 32, 33, 64, 100])
def test_the_bits_do_not_depend_on_the_chunks(chunk, dtype):
    """CASES C049's root: how a prompt is cut changes no bit of the result."""
    q, k, v, layout, _ = scene([(300, 0)], 9, 3, 64, 16, dtype=dtype)
    whole = paged_attention(q, k, v, layout)
    parts = [
        paged_attention(q[i : i + chunk], k, v, PagedLayout(layout.tables, torch.tensor([[0, len(q[i : i + chunk]), i]])))
        for i in range(0, 300, chunk)
    ]
    assert torch.equal(torch.cat(parts), whole)


def test_the_bits_do_not_depend_on_the_company_or_the_pages():
    q, k, v, layout, dense = scene([(3, 80), (1, 200), (40, 0)], 9, 3, 64, 16)
    together = paged_attention(q, k, v, layout)
    for b, ((first, new, old), (k_SKD, v_SKD)) in enumerate(zip(layout.rows.tolist(), dense)):
        alone = PagedLayout.of([[0]], [(0, new, old)])
        out = paged_attention(q[first : first + new], k_SKD[None].contiguous(), v_SKD[None].contiguous(), alone)
        assert torch.equal(out, together[first : first + new]), b


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 1100])
def test_a_long_sequence_worked_on_in_parts_gives_the_same_bits(dtype, window):
    """Alone, its parts go to several threads and are folded together; among many, one thread does it all."""
    spec = [(1, 3000), (2, 1023), (1, 1024), (3, 2047), (1, 5), (1, 1025), (1, 2500), (1, 900), (40, 1000)]
    q, k, v, layout, dense = scene(spec, 6, 2, 64, 16, dtype=dtype)
    together = paged_attention(q, k, v, layout, window)
    if dtype is torch.float32:
        torch.testing.assert_close(together, paged_attention_reference(q, k, v, layout, window), rtol=1e-4, atol=1e-5)
    for b, (first, new, old) in enumerate(layout.rows.tolist()):
        alone = PagedLayout(layout.tables[b : b + 1], torch.tensor([[0, new, old]]))
        assert torch.equal(paged_attention(q[first : first + new], k, v, alone, window), together[first : first + new]), b


def test_nan_in_a_key_that_is_seen_shows():
    q, k, v, layout, _ = scene([(1, 40)], 2, 2, 16, 8)
    k[layout.tables[0, 2], 3] = torch.nan
    assert paged_attention(q, k, v, layout).isnan().all()


def test_what_the_kernel_cannot_take_is_refused():
    q, k, v, layout, _ = scene([(1, 4)], 4, 2, 16, 8)
    with pytest.raises(KernelError, match="equal strides, D even, H a multiple of K; got D=16, H=4, K=2"):
        paged_attention(q, k, v.transpose(1, 2).contiguous().transpose(1, 2), layout)


@pytest.mark.parametrize(
    "change, sign",
    [
        (lambda q, k, v, t, r: (q.half(), k.half(), v.half(), t, r), "all in bf16 or all in fp32.*got q torch.float16 on cpu"),
        (lambda q, k, v, t, r: (q.float(), k, v, t, r), "got q torch.float32 on cpu, k torch.bfloat16"),
        (lambda q, k, v, t, r: (q, *(x.transpose(2, 3).contiguous().transpose(2, 3) for x in (k, v)), t, r), "last axes dense"),
        (lambda q, k, v, t, r: (q, k, v[..., :8], t, r), "of equal shapes"),
        (lambda q, k, v, t, r: (q[..., :8], k, v, t, r), "of equal shapes"),
        (lambda q, k, v, t, r: (q, k, v, t.long(), r), "wants tables as torch.int32 in one run of memory on the CPU; got torch.int64"),
        (lambda q, k, v, t, r: (q, k, v, t.repeat(2, 2)[:, : t.shape[1]], r.repeat(2, 1)), "strides .4, 1."),
        (lambda q, k, v, t, r: (q, k, v, t, r.int()), "wants rows as torch.int64"),
        (lambda q, k, v, t, r: (q, k, v, t, r.repeat(1, 2)), "want .B, J., .B, 3."),
    ],
)
def test_what_the_kernel_would_misread_is_refused(change, sign):
    q, k, v, layout, _ = scene([(1, 10)], 4, 2, 16, 8)
    q, k, v, tables, rows = change(q, k, v, layout.tables, layout.rows)
    with pytest.raises(KernelError, match=sign):
        paged_attention(q, k, v, PagedLayout(tables, rows))


@pytest.mark.parametrize("missing", [False, True])
def test_the_invariant_mode_serves_what_the_kernel_does_not(missing, monkeypatch):
    """fp16, or no native kernels: through the reference a row at a time, so that company and chunks change no bit."""
    q, k, v, layout, _ = scene([(3, 10), (40, 30)], 4, 2, 16, 8, dtype=torch.float32 if missing else torch.float16)
    if missing:
        monkeypatch.setattr(native, "library", lambda: native.Unavailable("nobody compiles here"))
        with pytest.raises(KernelError, match="there are no native kernels here: nobody compiles here"):
            paged_attention(q, k, v, layout)
    got = invariant_attention(q, k, v, layout, 20)
    exact = paged_attention_reference(q.float(), k.float(), v.float(), layout, 20)
    assert (got.float() - exact).abs().max() < 2e-3
    for b, i in ((0, 2), (1, 0), (1, 39)):
        first, _, old = layout.rows[b].tolist()
        alone = PagedLayout(layout.tables[b : b + 1], torch.tensor([[0, 1, old + i]]))
        assert torch.equal(invariant_attention(q[first + i][None], k, v, alone, 20)[0], got[first + i])


@pytest.mark.parametrize("slots", [torch.tensor([5, 0, 3], dtype=torch.int32), torch.tensor([5, 9, 0, 9, 3, 9])[::2]], ids=["int32", "strided"])
def test_slots_of_any_kind(slots):
    new = [torch.randn(3, 2, 6).to(torch.bfloat16) for _ in "kv"]
    pages = [torch.zeros(4, 3, 2, 6, dtype=torch.bfloat16) for _ in "kv"]
    paged_write(*new, *pages, slots)
    for x, rows in zip(pages, new):
        assert torch.equal(x.flatten(0, 1)[[5, 0, 3]], rows) and not x.flatten(0, 1)[6:].any()


def test_pages_of_another_shape_are_not_written_natively():
    """Keys and values whose pages differ in size would be written by one's strides."""
    new = [torch.randn(3, 2, 6).to(torch.bfloat16) for _ in "kv"]
    pages = [torch.zeros(4, 3, 2, 8, dtype=torch.bfloat16) for _ in "kv"]
    with pytest.raises(RuntimeError):
        paged_write(*new, *pages, torch.tensor([5, 0, 3]))


def test_writing_by_slots_equals_the_plain_way():
    """Strided rows (K and V as slices of one product) too."""
    qkv = torch.randn(5, 7, 6).to(torch.bfloat16)
    new = qkv[:, 1:3], qkv[:, 4:6]
    slots = torch.tensor([11, 0, 7, 3, 4])
    native_pages, plain_pages = ([torch.zeros(4, 3, 2, 6, dtype=torch.bfloat16) for _ in "kv"] for _ in "ab")
    paged_write(*new, *native_pages, slots)
    for x, rows in zip(plain_pages, new):
        x.flatten(0, 1)[slots] = rows
    assert all(torch.equal(a, b) for a, b in zip(native_pages, plain_pages))
