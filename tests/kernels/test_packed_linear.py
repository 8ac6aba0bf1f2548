"""oneDNN's blocked weights are the same map, and go back to the same bits."""

import pytest
import torch

from kvedu.kernels.packed_linear import PackedWeight, packed_linear, packed_swiglu, packing_pays

DTYPES = [dtype for dtype in (torch.float32, torch.bfloat16) if packing_pays(dtype)]
needs_packing = pytest.mark.skipif(not DTYPES, reason="this CPU or wheel has no oneDNN packed linear (no GPU needed)")


@needs_packing
@pytest.mark.parametrize("dtype", DTYPES or [None])
@pytest.mark.parametrize("n, n_in, n_out", [(1, 64, 96), (5, 33, 7), (64, 576, 960)])
@pytest.mark.parametrize("bias", [False, True])
def test_same_map(dtype, n, n_in, n_out, bias):
    generator = torch.Generator().manual_seed(0)
    x, w, r = (torch.randn(*s, generator=generator).to(dtype) for s in ((n, n_in), (n_out, n_in), (n, n_out)))
    b = torch.randn(n_out, generator=generator).to(dtype) if bias else None
    packed = PackedWeight(w)
    exact = x.double() @ w.double().T + (b.double() if bias else 0)
    scale = exact.abs().max().item()
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype] * scale
    assert (packed_linear(x, packed, b, None).double() - exact).abs().max() <= tolerance
    assert (packed_linear(x, packed, b, r).double() - exact - r.double()).abs().max() <= 2 * tolerance
    assert torch.equal(packed.plain(), w)


@needs_packing
@pytest.mark.parametrize("dtype", DTYPES or [None])
@pytest.mark.parametrize("n, width, mlp_width", [(1, 64, 96), (5, 33, 7)])
@pytest.mark.parametrize("bias", [False, True])
def test_swiglu_on_the_way_out(dtype, n, width, mlp_width, bias):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, width, generator=generator).to(dtype)
    w = torch.randn(2 * mlp_width, width, generator=generator).to(dtype)
    b = torch.randn(2 * mlp_width, generator=generator).to(dtype) if bias else None
    gate, up = (x.double() @ w.double().T + (b.double() if bias else 0)).chunk(2, dim=-1)
    exact = torch.nn.functional.silu(gate) * up
    got = packed_swiglu(x, *(PackedWeight(part) for part in w.chunk(2)), b)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype] * exact.abs().max().item()
    assert (got.double() - exact).abs().max() <= tolerance


def test_no_packing_off_the_cpu():
    assert not packing_pays(torch.bfloat16, "meta") and not packing_pays(torch.float16)
