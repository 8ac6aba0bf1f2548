"""Rotate-and-write in one kernel against the three operations one after the other."""

import pytest
import torch
from scenes import DEVICE, hollow

from kvedu.kernels.launch import KernelError, missing, runs_on
from kvedu.kernels.rope import cos_sin, rotate, rotate_reference
from kvedu.kernels.rope_write import cost, rope_write
from kvedu.rope_config import RopeConfig

needs_triton = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")


def scene(H, K, D, dim, C, *, DV=None, dtype=torch.float32, stretch=1, positions=(3, 700, 0, 9), table=torch.float32):
    """Queries, keys and values of a step, tables, pages full of NaN, slots of which one is padding."""
    generator = torch.Generator().manual_seed(D)
    N = len(positions)
    q, k, v = (hollow((N, heads, width), dtype, stretch).to(DEVICE) for heads, width in ((H, D), (K, D), (K, DV or D)))
    for x in (q, k, v):
        x.copy_(torch.randn(x.shape, generator=generator))
    cos, sin = cos_sin(RopeConfig(dim=dim), torch.tensor(positions, device=DEVICE), table)
    pages = [hollow((3, C, K, width), dtype, stretch).to(DEVICE) for width in (D, DV or D)]
    return q, k, v, cos, sin, *pages, torch.tensor([3 * C - 1, -1, 0, C], device=DEVICE)[:N]


@needs_triton
@pytest.mark.parametrize(
    "shape, options",
    [
        ((9, 3, 64, 64, 16), {}),
        ((6, 2, 48, 32, 5), {"stretch": 2}),
        ((5, 5, 34, 34, 1), {"DV": 16}),
        ((4, 1, 80, 20, 3), {"dtype": torch.float16}),
        ((4, 2, 96, 96, 4), {"dtype": torch.float16, "table": torch.float16, "stretch": 2}),
    ],
)
@pytest.mark.parametrize("heads", [None, 1, 2])
def test_is_the_three_operations(shape, options, heads):
    """Rotated queries and keys, values as they are, each at its slot; every other place still NaN; inputs unchanged."""
    scene_of = scene(*shape, **options)
    q, k, v, cos, sin, k_pages, v_pages, slots = scene_of
    before = [x.clone() for x in (q, k, v)]
    got = rope_write(*scene_of, triton=True, heads=heads)
    assert all(torch.equal(x, y) for x, y in zip((q, k, v), before))
    C, exact = shape[4], RopeConfig(dim=shape[3])
    positions = torch.tensor([3, 700, 0, 9])
    written = torch.zeros(k_pages.shape[:2], dtype=torch.bool)
    for x, y in ((q, got), (k, torch.stack([k_pages[s // C, s % C] for s in slots.tolist() if s >= 0]))):
        kept = slots >= 0 if y.shape[1] == k.shape[1] and y.shape[0] != q.shape[0] else torch.ones(4, dtype=torch.bool)
        want = rotate_reference(x.float().cpu(), positions, exact)[kept.cpu()]
        plain = rotate(x, *cos_sin(exact, positions.to(DEVICE), x.dtype)).float().cpu()[kept.cpu()]
        assert (y.float().cpu() - want).abs().max() <= 2 * (plain - want).abs().max().clamp(min=1e-6)
    for n, s in enumerate(slots.tolist()):
        if s >= 0:
            assert torch.equal(v_pages[s // C, s % C], v[n])
            written[s // C, s % C] = True
    assert k_pages[~written].isnan().all() and v_pages[~written].isnan().all()


@needs_triton
def test_the_second_call_is_the_first():
    """C094: a launch that is repeated (by a tuner, by a graph's warm-up) changes nothing: inputs are never written to."""
    first = scene(6, 2, 32, 32, 4)
    a = rope_write(*first, triton=True)
    pages = [x.clone() for x in first[5:7]]
    assert torch.equal(rope_write(*first, triton=True), a)
    assert all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(first[5:7], pages))


@needs_triton
def test_a_slot_beyond_32_bits():
    """C tokens a page and a stride of 2**31 elements between pages."""
    far = 2**31 + 16
    q, k, v, cos, sin, *_ = scene(1, 1, 16, 16, 1, dtype=torch.float16, positions=(5,))
    pages = [torch.empty(far + 16, dtype=torch.float16, device=DEVICE).as_strided((2, 1, 1, 16), (far, 16, 16, 1)) for _ in "kv"]
    rope_write(q, k, v, cos, sin, *pages, torch.tensor([1], device=DEVICE), triton=True)
    assert torch.equal(pages[1][1, 0], v[0])


def test_without_triton_the_same_promise():
    q, k, v, cos, sin, k_pages, v_pages, slots = scene(6, 2, 32, 32, 4)
    got = rope_write(q.cpu(), k.cpu(), v.cpu(), cos.cpu(), sin.cpu(), k_pages.cpu(), v_pages.cpu(), slots.cpu())
    assert torch.allclose(got, rotate_reference(q.cpu(), torch.tensor([3, 700, 0, 9]), RopeConfig(dim=32)), atol=1e-4)


@needs_triton
def test_what_does_not_fit_is_refused():
    q, k, v, cos, sin, k_pages, v_pages, slots = scene(6, 2, 32, 32, 4)
    with pytest.raises(KernelError, match="3 slots do not fit"):
        rope_write(q, k, v, cos, sin, k_pages, v_pages, slots[:3], triton=True)
    with pytest.raises(KernelError, match="cos_sin for 4 tokens"):
        rope_write(q, k, v, cos[:2], sin[:2], k_pages, v_pages, slots, triton=True)


def test_cost():
    """Decode of one token, SmolLM2's shape: 15 heads of 64 in two bytes each way, and a table row of 64 numbers."""
    assert cost(1, 9, 3, 64).written == 15 * 64 * 2 and cost(1, 9, 3, 64).read == 15 * 64 * 2 + 64 * 4 + 8
