"""Kernels that work on one row at a time: RMSNorm, with a residual and without, and SwiGLU; gradients and shapes of all."""

import pytest
import torch
from scenes import DEVICE, DTYPES, hollow

from kvedu.kernels.launch import KernelError, missing, runs_on
from kvedu.kernels.rmsnorm import add_cost, add_rmsnorm, add_rmsnorm_reference, rmsnorm, rmsnorm_reference
from kvedu.kernels.softmax import softmax
from kvedu.kernels.swiglu import cost, swiglu, swiglu_reference

needs_triton = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")
F32 = torch.float32


def rows(N, M, dtype, seed=0, stretch=2):
    x = hollow((N, M), dtype, stretch).to(DEVICE)
    return x.copy_(torch.randn(N, M, generator=torch.Generator().manual_seed(seed)))


def close(got, exact, plain):
    """Twice the error of the plain operation in the same precision; in fp32 a few last bits."""
    allowed = max(2 * (plain.float() - exact).abs().max().item(), 4e-6 if got.dtype == F32 else 0)
    return (got.float() - exact).abs().max().item() <= allowed


@needs_triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("M, block", [(1, None), (70, None), (70, 32), (64, 64), (65, 64)])
def test_rmsnorm_in_one_tile_and_in_several(M, block, dtype):
    x, weight = rows(3, M, dtype), rows(1, M, dtype, 1)[0]
    x[1] = 0  # a row of zeros stays zero: eps keeps the root from nothing
    got = rmsnorm(x, weight, 1e-5, triton=True, block=block)
    assert close(got, rmsnorm_reference(x.float(), weight.float(), 1e-5), torch.nn.functional.rms_norm(x, (M,), weight, 1e-5))
    assert (got[1] == 0).all()


@needs_triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("M, block", [(70, None), (70, 32)])
def test_the_residual_is_added_and_rounded_first(M, block, dtype):
    x, residual, weight = rows(3, M, dtype), rows(3, M, dtype, 2), rows(1, M, dtype, 1)[0]
    normed, total = add_rmsnorm(x, residual, weight, 1e-5, triton=True, block=block)
    plain, want = add_rmsnorm_reference(x, residual, weight, 1e-5)
    assert torch.equal(total, want) and close(normed, rmsnorm_reference(want.float(), weight.float(), 1e-5), plain)
    by_torch = add_rmsnorm(x.cpu(), residual.cpu(), weight.cpu(), 1e-5)
    assert torch.equal(by_torch[1], want.cpu()) and torch.allclose(by_torch[0].float(), plain.float().cpu(), atol=2e-2 if dtype != F32 else 1e-5)


@needs_triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("F, block", [(1, None), (70, None), (70, 16)])
def test_swiglu(F, block, dtype):
    x = rows(3, 2 * F, dtype)
    x[0, 0], x[1, 0] = -60, 60  # where exp overflows fp16
    gate, up = x.chunk(2, -1)
    assert close(swiglu(x, triton=True, block=block), swiglu_reference(x.float()), torch.nn.functional.silu(gate) * up)
    assert torch.allclose(swiglu(x.cpu()).float(), swiglu_reference(x.cpu().float()), atol=0.06 if dtype != F32 else 1e-5)


@needs_triton
def test_gradients_go_the_other_way():
    """The kernels give none, so with a gradient wanted PyTorch answers."""
    x, weight = torch.randn(2, 8, device=DEVICE, requires_grad=True), torch.ones(8, device=DEVICE)
    for by in ({"triton": True}, {}):
        for run in (swiglu, softmax, lambda x, **by: rmsnorm(x, weight, 1e-5, **by), lambda x, **by: add_rmsnorm(x, x, weight, 1e-5, **by)[0]):
            (given,) = torch.autograd.grad(run(x, **by).sum(), x)
            assert given.isfinite().all()
            with torch.no_grad():
                assert not run(x, **by).requires_grad


@needs_triton
@pytest.mark.parametrize("shape", [(8,), (2, 3, 8), (2, 1, 3, 8), (2, 0, 8)])
def test_leading_axes_are_rows(shape):
    """PyTorch takes any number of them, so the kernels do; dense, and with gaps."""
    for x in (torch.randn(shape, device=DEVICE), torch.randn(*shape[:-1], 16, device=DEVICE)[..., :8]):
        weight = torch.randn(8, device=DEVICE)
        torch.testing.assert_close(swiglu(x, triton=True), swiglu(x, triton=False))
        torch.testing.assert_close(softmax(x, triton=True), torch.softmax(x, -1))
        torch.testing.assert_close(add_rmsnorm(x, 2 * x, weight, 1e-5, triton=True), add_rmsnorm_reference(x, 2 * x, weight, 1e-5))


def test_an_odd_width_has_no_two_halves():
    """It had lost its last column."""
    for triton in (False, True) if runs_on(torch.device(DEVICE)) else (False,):
        with pytest.raises(KernelError, match="even width; got .2, 7."):
            swiglu(torch.zeros(2, 7, device=DEVICE), triton=triton)


@needs_triton
def test_a_weight_of_another_width_is_refused():
    with pytest.raises(KernelError, match="do not fit"):
        rmsnorm(rows(2, 8, F32), torch.ones(7, device=DEVICE), 1e-5, triton=True)
    with pytest.raises(KernelError, match="want one shape"):
        add_rmsnorm(rows(2, 8, F32), rows(1, 8, F32), torch.ones(8, device=DEVICE), 1e-5, triton=True)


def test_costs():
    assert add_cost(2, 10).read == (2 * 2 * 10 + 10) * 2 and add_cost(2, 10).written == 2 * 2 * 10 * 2
    assert cost(2, 10).read == 2 * cost(2, 10).written == 80
