"""RMSNorm against its definition, in fp32 and where half precision would overflow."""

import pytest
import torch

from kvedu.kernels.rmsnorm import rmsnorm, rmsnorm_reference


@pytest.mark.parametrize("width", [1, 7, 64])
def test_equals_the_definition(width):
    x, w = torch.randn(5, width), torch.randn(width)
    wanted = x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w
    torch.testing.assert_close(rmsnorm_reference(x, w, 1e-5), wanted)
    torch.testing.assert_close(rmsnorm(x, w, 1e-5), wanted)


@pytest.mark.parametrize("dtype, rtol", [(torch.bfloat16, 0.016), (torch.float16, 0.004)])
def test_accumulates_in_fp32(dtype, rtol):
    """400**2 overflows fp16; the mean of squares must not be taken in it."""
    x, w = (400 * torch.randn(3, 64)).to(dtype), torch.ones(64, dtype=dtype)
    for norm in (rmsnorm, rmsnorm_reference):
        out = norm(x, w, 1e-5)
        assert out.dtype == dtype and torch.isfinite(out).all()
        torch.testing.assert_close(out.float(), rmsnorm_reference(x.float(), w.float(), 1e-5), rtol=rtol, atol=rtol)
