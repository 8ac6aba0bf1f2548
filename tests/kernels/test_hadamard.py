"""The rotation before rounding: its own inverse, no product changed, an outlier spread over its block."""

import doctest

import pytest
import torch

from kvedu.caches.formats import integer, rotated
from kvedu.errors import CacheError
from kvedu.kernels import hadamard as module
from kvedu.kernels.codes import decode, encode
from kvedu.kernels.hadamard import block_of, cost, hadamard, hadamard_reference


@pytest.mark.parametrize("D", [2, 6, 8, 64, 80, 96, 128])
def test_the_product_is_the_definition_and_undoes_itself(D):
    x, y = torch.randn(2, 5, 3, D, generator=torch.Generator().manual_seed(D))
    torch.testing.assert_close(hadamard(x), hadamard_reference(x))
    torch.testing.assert_close((x @ module._matrix(D, x.device)), hadamard_reference(x))
    torch.testing.assert_close(hadamard(hadamard(x)), x)
    torch.testing.assert_close((hadamard(x) * hadamard(y)).sum(-1), (x * y).sum(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("D, block", [(64, 64), (80, 16), (96, 32), (6, 2)])
def test_an_outlier_is_spread_over_its_block_and_no_further(D, block):
    assert block_of(D) == block
    x = torch.zeros(D)
    x[0] = block**0.5
    assert torch.allclose(hadamard(x)[:block].abs(), torch.ones(block)) and not hadamard(x)[block:].any()


def test_an_odd_head_is_refused_where_it_is_met():
    with pytest.raises(CacheError, match="head of 5 elements cannot be rotated.*along the tokens"):
        hadamard(torch.zeros(5))
    with pytest.raises(CacheError, match="cannot be rotated"):
        rotated(integer(8, 5)).check_head(5)


@pytest.mark.parametrize("bits", [4, 8])
def test_rounding_loses_less_of_rotated_numbers(bits):
    """One channel 50 times as large: per token it spoils all others; rotated, all lose a little."""
    x = torch.randn(64, 2, 32, generator=torch.Generator().manual_seed(2))
    x[..., 5] *= 50
    plain, turned = integer(bits, 32), rotated(integer(bits, 32))
    others = [c for c in range(32) if c != 5]
    lost = [(decode(encode(x, f), f, 32) - x)[..., others].square().mean().item() for f in (plain, turned)]
    assert lost[0] > 1.2 * lost[1], lost


def test_low_precision_goes_through_fp32():
    x = torch.randn(7, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(hadamard(x), hadamard(x.float()).bfloat16())
    assert torch.equal(hadamard(x.T.contiguous().T), hadamard(x)) and hadamard(x[:0]).shape == (0, 64)
    assert torch.equal(hadamard(x.double()).float(), hadamard_reference(x.double()).float())


def test_cost_and_examples():
    assert cost(10, 64).flops == 10 * 64 * 7 and cost(10, 64).read == cost(10, 64).written == 1280
    result = doctest.testmod(module, extraglobs={"torch": torch})
    assert result.failed == 0 and result.attempted == 2
