"""Packed weights are the same map in every layout, and go back to the same bits."""

import pytest
import torch

from kvedu.kernels.packed_linear import (
    OneDnnGated,
    OneDnnLinear,
    PanelLinear,
    onednn_packs,
    pack_gated,
    pack_linear,
    packing_pays,
)
from kvedu.kernels.panel_linear import panels_pay

LAYOUTS = [("onednn", dtype) for dtype in (torch.float32, torch.bfloat16) if onednn_packs(dtype)]
LAYOUTS += [("panels", dtype) for dtype in (torch.float32, torch.bfloat16) if panels_pay(dtype)]
needs_packing = pytest.mark.skipif(not LAYOUTS, reason="this CPU or wheel has no packed linear (no GPU needed)")


def numbers(*shapes, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]


@needs_packing
@pytest.mark.parametrize("layout, dtype", LAYOUTS or [(None, None)])
@pytest.mark.parametrize("n, n_in, n_out", [(1, 64, 96), (5, 34, 7), (64, 576, 960), (250, 30, 33), (13, 2, 1)])
@pytest.mark.parametrize("bias", [False, True])
def test_same_map(layout, dtype, n, n_in, n_out, bias):
    x, w, r, b = numbers((n, n_in), (n_out, n_in), (n, n_out), (n_out,), dtype=dtype)
    b = b if bias else None
    packed = {"onednn": OneDnnLinear, "panels": PanelLinear}[layout](w, b)
    exact = x.double() @ w.double().T + (b.double() if bias else 0)
    scale = exact.abs().max().item()
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype] * scale
    assert (packed(x).double() - exact).abs().max() <= tolerance
    assert (packed(x, r).double() - exact - r.double()).abs().max() <= 2 * tolerance
    assert torch.equal(packed.plain(), w)


@needs_packing
@pytest.mark.parametrize("layout, dtype", LAYOUTS or [(None, None)])
@pytest.mark.parametrize("n, width, mlp_width", [(1, 64, 96), (5, 34, 7), (30, 66, 17)])
@pytest.mark.parametrize("bias", [False, True])
def test_swiglu_on_the_way_out(layout, dtype, n, width, mlp_width, bias):
    x, w, b = numbers((n, width), (2 * mlp_width, width), (2 * mlp_width,), dtype=dtype)
    b = b if bias else None
    gate, up = (x.double() @ w.double().T + (b.double() if bias else 0)).chunk(2, dim=-1)
    exact = torch.nn.functional.silu(gate) * up
    packed = OneDnnGated(w, b) if layout == "onednn" else PanelLinear(w, b, gated=True)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype] * exact.abs().max().item()
    assert (packed(x).double() - exact).abs().max() <= tolerance
    assert torch.equal(packed.plain(), w)


needs_panels = pytest.mark.skipif(not panels_pay(torch.bfloat16), reason="the native kernels do not run here (no GPU needed)")


@needs_panels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gated", [False, True])
def test_a_row_gives_the_same_bits_in_every_batch(gated, dtype):
    """What oneDNN does not promise: a product per row that no neighbour changes."""
    x, w = numbers((300, 576), (640, 576), dtype=dtype)
    packed = pack_gated(w) if gated else pack_linear(w)
    whole = packed(x)
    for n in (1, 2, 3, 7, 11, 12, 13, 25, 64, 241):
        assert torch.equal(packed(x[:n]), whole[:n]), n


@needs_panels
def test_the_bits_do_not_depend_on_the_number_of_threads():
    x, w = numbers((37, 96), (200, 96), dtype=torch.bfloat16)
    packed, before = pack_linear(w), torch.get_num_threads()
    outs = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outs.append(packed(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])


@needs_panels
def test_silu_at_the_far_ends():
    """Gates of any size, and NaN stays NaN."""
    w = torch.eye(2, dtype=torch.bfloat16)  # gate = x0, up = x1
    gates = torch.tensor([-1e30, -200.0, -88.0, -20.0, -0.0, 20.0, 88.0, 200.0, 1e30, float("nan")])
    x = torch.stack((gates, torch.ones(len(gates))), dim=1).to(torch.bfloat16)
    want = torch.nn.functional.silu(gates.to(torch.bfloat16).double())
    assert torch.allclose(pack_gated(w)(x)[:, 0].double(), want, rtol=1e-2, atol=1e-6, equal_nan=True)


@needs_panels
def test_an_odd_width_is_left_to_onednn():
    (w,) = numbers((4, 5), dtype=torch.bfloat16)
    assert isinstance(pack_linear(w), OneDnnLinear)


@needs_panels
def test_another_dtype_is_refused():
    x, w = numbers((2, 4), (4, 4), dtype=torch.float32)
    with pytest.raises(ValueError, match="the weight is torch.float32, x is torch.bfloat16"):
        pack_linear(w)(x.to(torch.bfloat16))


def test_no_packing_off_the_cpu():
    assert not packing_pays(torch.bfloat16, "meta") and not packing_pays(torch.float16)
