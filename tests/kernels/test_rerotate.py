"""Cached keys turned on to another position are the keys that would have been made there."""

from dataclasses import replace

import pytest
import torch

from kvedu.errors import CacheError
from kvedu.kernels.rerotate import rerotate
from kvedu.kernels.rope import cos_sin, rotate, rotate_reference
from kvedu.rope_config import rope_from_hf
from rope_scalings import SCALINGS


def keys(n=6, K=2, D=8, seed=0):
    return torch.randn(n, K, D, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("dim", [8, 4])
def test_turned_on_equals_turned_at_once(kind, dim):
    """Every scaling, magnitudes among them; forwards, backwards and not at all; with dimensions that are not rotated."""
    raw = {"rope_theta": 10_000.0, "rope_scaling": SCALINGS[kind] or None}
    rope = replace(rope_from_hf(raw, 8, 64), dim=dim) if kind != "longrope" else rope_from_hf(raw, 8, 64)
    k, at, by = keys(), torch.tensor([5, 9, 10, 17, 40, 63]), torch.tensor([-5, -8, 0, 3, -30, 100])
    before = rotate_reference(k, at, rope, length=64)
    torch.testing.assert_close(rerotate(before, by, rope, length=64), rotate_reference(k, at + by, rope, length=64), rtol=1e-5, atol=1e-5)


def test_there_and_back_is_the_key_itself():
    rope = rope_from_hf({}, 8, 64)
    k, by = keys(), torch.arange(6) * 7
    torch.testing.assert_close(rerotate(rerotate(k, by, rope), -by, rope), k)


def test_bf16_rounds_at_every_call():
    """Turned a hundred times by one position, bf16 keys are farther from the truth than turned once by a hundred."""
    rope, k = rope_from_hf({}, 64, 8192), keys(D=64)
    truth = rotate_reference(k, torch.full((6,), 100), rope)
    once = often = k.to(torch.bfloat16)
    once = rerotate(once, torch.full((6,), 100), rope)
    for _ in range(100):
        often = rerotate(often, torch.ones(6, dtype=torch.long), rope)
    assert once.dtype is often.dtype is torch.bfloat16
    error = [(x.float() - truth).norm() / truth.norm() for x in (once, often)]
    assert error[0] < 0.01 and error[1] > 2 * error[0]


def test_agrees_with_the_fast_rotation():
    rope, k = rope_from_hf({}, 8, 64), keys()
    old, new = torch.arange(20, 26), torch.arange(4, 10)
    got = rerotate(rotate(k, *cos_sin(rope, old, torch.float32)), new - old, rope)
    torch.testing.assert_close(got, rotate(k, *cos_sin(rope, new, torch.float32)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("by", [torch.tensor([1]), torch.tensor(1), torch.zeros(6, 1, dtype=torch.long)])
def test_one_step_per_key(by):
    with pytest.raises(CacheError, match="6 keys need as many steps"):
        rerotate(keys(), by, rope_from_hf({}, 8, 64))
