"""Softmax in parts and the merge of partial results: both against their definitions, Triton and PyTorch."""

import pytest
import torch
from scenes import DEVICE, hollow

from kvedu.kernels.launch import KernelError, missing, runs_on
from kvedu.kernels.softmax import cost, merge, merge_cost, merge_reference, softmax, softmax_reference

needs_triton = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")


@needs_triton
@pytest.mark.parametrize("width", [1, 5, 16, 33, 70])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_softmax_by_tiles(width, dtype):
    x = hollow((3, width), dtype, 2).to(DEVICE)
    x.copy_(torch.randn(3, width) * 5)
    got, exact = softmax(x, triton=True, block=16).float(), softmax_reference(x.float())
    allowed = 1e-6 if dtype == torch.float32 else 2 * (softmax_reference(x).float() - exact).abs().max().item()
    assert (got - exact).abs().max() <= allowed and torch.allclose(got.sum(-1), torch.ones(3, device=DEVICE), atol=2e-3)


@needs_triton
@pytest.mark.parametrize("width", [5, 33])
def test_lanes_past_the_end_weigh_nothing(width):
    """C094: with all logits -10, a padded lane that counts as 0 would take nearly all the weight."""
    x = torch.full((2, width), -10.0, device=DEVICE)
    got = softmax(x, triton=True, block=64)
    assert torch.allclose(got, torch.full_like(x, 1 / width)) and torch.allclose(got, torch.softmax(x, -1))


@needs_triton
def test_a_maximum_that_comes_late():
    """Leading tiles of -inf, and a running sum that must shrink to nothing when the maximum grows."""
    x = torch.full((2, 48), -torch.inf, device=DEVICE)
    x[0, 40], x[1, 3], x[1, 47] = 1.0, -80.0, 80.0
    assert torch.equal(softmax(x, triton=True, block=16), torch.softmax(x, -1))


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize("triton", [pytest.param(True, marks=needs_triton), False])
def test_parts_of_a_softmax_make_the_whole(parts, triton):
    """Scores cut anywhere, each part done alone; one head's last part is empty and full of NaN."""
    generator = torch.Generator().manual_seed(parts)
    N, H, D, S = 2, 3, 20, 12
    scores, values = torch.randn(N, H, S, generator=generator) * 8, torch.randn(S, D, generator=generator)
    whole = torch.softmax(scores * 0.6931471805599453, -1) @ values  # base 2
    cuts = torch.linspace(0, S, parts + 1).int().tolist()
    results = torch.full((N, H, parts + 1, D), torch.nan)
    logs = torch.full((N, H, parts + 1), -torch.inf)
    for i, (lo, hi) in enumerate(zip(cuts, cuts[1:])):
        logs[..., i] = torch.logsumexp(scores[..., lo:hi] * 0.6931471805599453, -1) / 0.6931471805599453
        results[:, :, i] = torch.softmax(scores[..., lo:hi] * 0.6931471805599453, -1) @ values[lo:hi]
    got = merge(results.to(DEVICE), logs.to(DEVICE), triton=triton)
    assert torch.allclose(got.cpu(), whole, atol=1e-5)


@pytest.mark.parametrize("triton", [pytest.param(True, marks=needs_triton), False])
def test_a_row_that_saw_nothing_is_zero(triton):
    parts, logs = torch.full((1, 1, 3, 4), torch.nan, device=DEVICE), torch.full((1, 1, 3), -torch.inf, device=DEVICE)
    assert torch.equal(merge(parts, logs, triton=triton), torch.zeros(1, 1, 4, device=DEVICE))
    assert torch.equal(merge_reference(parts, logs), torch.zeros(1, 1, 4, device=DEVICE))


@needs_triton
@pytest.mark.parametrize("logs", [torch.zeros(1, 1, 3), torch.zeros(1, 2, 2), torch.zeros(1, 1, 2, device="meta")], ids=["parts", "heads", "device"])
def test_parts_and_log_sums_that_do_not_fit_are_refused(logs):
    with pytest.raises(KernelError, match="do not fit|is on meta"):
        merge(torch.zeros(1, 1, 2, 4), logs, triton=True)


def test_costs():
    assert cost(2, 10, 2).read == 80 and cost(2, 10, 2).written == 40
    assert merge_cost(1, 2, 3, 4).read == 4 * 2 * 3 * 5 and merge_cost(1, 2, 3, 4).written == 16
