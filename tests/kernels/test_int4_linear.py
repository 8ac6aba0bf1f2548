"""Weights in 4 bits: what the product computes is the rounded weight, wherever it runs; rounding is to the nearest of 16 levels."""

import doctest

import pytest
import torch
from torch.nn.functional import linear, silu

from kvedu.kernels import int4_linear
from kvedu.kernels.int4_linear import GROUP, Int4Linear, int4_runs, round_to_int4

SHAPES = [(48, 64), (16, 32), (96, 160), (7, 48), (5, 24)]


def weight_of(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_weight_goes_to_a_level_near_it(shape, dtype):
    """At most half a step away, and in bf16 what rounding step and lowest value adds."""
    weight = weight_of(shape, dtype)
    packed = Int4Linear(weight)
    _, step, low = round_to_int4(weight)
    group = shape[1] // step.shape[1]
    half = step.float().repeat_interleave(group, dim=1) / 2
    slack = 1e-6 if dtype == torch.float32 else 0.06
    assert ((packed.plain().float() - weight.float()).abs() <= half + slack).all()
    assert (packed.plain().float() - weight.float()).abs().max() > 0.05  # it is rounded
    assert step.shape == low.shape == (shape[0], shape[1] // group) and GROUP % group == 0


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 5])
def test_the_product_is_that_of_the_rounded_weight(shape, dtype, rows):
    """Twice the error of the same product in plain bf16 at most, with bias and residual."""
    packed = Int4Linear(weight_of(shape, dtype), weight_of(shape[:1], dtype, 1))
    x, residual = weight_of((rows, shape[1]), dtype, 2), weight_of((rows, shape[0]), dtype, 3)
    exact = linear(x.float(), packed.plain().float(), packed.bias.float()) + residual.float()
    plain = linear(x, packed.plain(), packed.bias) + residual
    limit = 2 * (plain.float() - exact).abs().max() + 1e-5
    assert (packed(x, residual).float() - exact).abs().max() <= limit + (0.05 if dtype == torch.bfloat16 else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gated_weight(dtype):
    packed = Int4Linear(weight_of((64, 32), dtype), gated=True)
    x = weight_of((3, 32), dtype, 1)
    gate, up = linear(x.float(), packed.plain().float()).chunk(2, dim=-1)
    torch.testing.assert_close(packed(x).float(), silu(gate) * up, rtol=0.03, atol=1e-5 if dtype == torch.float32 else 0.1)


def test_sixteen_levels_come_back_as_they_were():
    """Weights that are 16 levels already, as Q4_1 leaves them, lose nothing; a group of one value neither."""
    codes = torch.randint(0, 16, (16, 64), generator=torch.Generator().manual_seed(1)).float()
    codes[:, 0], codes[:, 1], codes[:, 32], codes[:, 33] = 0, 15, 0, 15
    assert torch.equal(Int4Linear(codes * 0.25 - 2.0).plain(), codes * 0.25 - 2.0)
    assert torch.equal(Int4Linear(torch.full((16, 32), 0.5)).plain(), torch.full((16, 32), 0.5))


def test_a_quarter_of_the_bytes_where_codes_are_read():
    packed = Int4Linear(weight_of((64, 128), torch.bfloat16))
    held = sum(t.numel() * t.element_size() for t in packed.tensors)
    whole = 64 * 128 * 2
    assert held == (whole / 4 + 2 * 2 * 64 * 128 / GROUP if int4_runs(torch.bfloat16, 128, 64) else whole)
    assert not int4_runs(torch.float32, 128, 64) and not int4_runs(torch.bfloat16, 48, 64)
    assert doctest.testmod(int4_linear).failed == 0
