"""The Gumbel draw at its edges: broken rows, rows without a vocabulary, temperatures next to nothing, what does not fit."""

import math

import pytest
import torch
from scenes import DEVICE

from kvedu.kernels.draw import draw, draw_reference
from kvedu.kernels.launch import KernelError, missing, runs_on

needs_triton = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")


def heats(N, value=1.0):
    return torch.full((N,), value, device=DEVICE)


def seeds(N):
    return torch.arange(N, device=DEVICE)


@pytest.mark.parametrize("triton", [pytest.param(True, marks=needs_triton), False])
@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_a_broken_row_is_none_and_breaks_no_other(heat, triton):
    """C046: NaN in part and throughout, infinity, nothing finite; the last block of a row, too."""
    logits = torch.arange(5.0, device=DEVICE).repeat(7, 1) * 40
    logits[1], logits[2, 0], logits[3, 4], logits[4, 2], logits[5] = math.nan, math.nan, math.nan, math.inf, -math.inf
    logits[6, :4] = -math.inf
    for block in (None, 2):
        assert draw(logits, heats(7, heat), seeds(7), triton=triton, block=block).tolist() == [4, -1, -1, -1, -1, -1, 4]


@pytest.mark.parametrize("triton", [pytest.param(True, marks=needs_triton), False])
def test_no_vocabulary_and_nothing_above_the_least(triton):
    assert draw(torch.empty(2, 0, device=DEVICE), heats(2), seeds(2), triton=triton).tolist() == [-1, -1]
    logits = torch.tensor([[1.0, 3, 2], [1, 3, 2]], device=DEVICE)
    assert draw(logits, heats(2, 0), seeds(2), torch.tensor([4.0, 2.5], device=DEVICE), triton=triton).tolist() == [-1, 1]


@pytest.mark.parametrize("triton", [pytest.param(True, marks=needs_triton), False])
@pytest.mark.parametrize("heat", [1e-45, 1e-40, 1e-38, 1e-31, 1e-20])
def test_a_temperature_next_to_nothing_is_greedy(heat, triton):
    """A logit over it would be infinite, and so would its neighbors: the first of equals had won."""
    logits = torch.tensor([[1.0, 7, 3, 9, 5], [-5, -9, -4, -7, -8]], device=DEVICE)
    assert draw(logits, heats(2, heat), seeds(2), triton=triton, block=2).tolist() == [3, 2]


@needs_triton
def test_the_kernel_is_the_definition_at_every_edge():
    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(64, 9, generator=generator) * 4).to(DEVICE)
    odd = torch.tensor([math.nan, math.inf, -math.inf], device=DEVICE)[torch.randint(3, (64, 9), generator=generator).to(DEVICE)]
    logits = torch.where((torch.rand(64, 9, generator=generator) < 0.05).to(DEVICE), odd, logits)
    heat = torch.tensor([0, 1e-42, 0.7, 3.0], device=DEVICE).repeat(16)
    for block in (None, 4):
        assert torch.equal(draw(logits, heat, seeds(64), triton=True, block=block), draw_reference(logits, heat, seeds(64)))


@needs_triton
def test_what_does_not_fit_is_refused():
    logits = torch.zeros(3, 5, device=DEVICE)
    for given in ((heats(2), seeds(3)), (heats(3), seeds(2)), (heats(3), seeds(3), heats(2)), (heats(3)[:, None], seeds(3))):
        with pytest.raises(KernelError, match="want .N, V., and .N. each"):
            draw(logits, *given, triton=True)
    with pytest.raises(KernelError, match="want .N, V., and .N. each"):
        draw(logits[None], heats(3), seeds(3), triton=True)
    with pytest.raises(KernelError, match="last axis of logits must be dense"):
        draw(torch.zeros(3, 10, device=DEVICE)[:, ::2], heats(3), seeds(3), triton=True)
    with pytest.raises(KernelError, match="move one of them"):
        draw(logits, heats(3).to("meta"), seeds(3), triton=True)
