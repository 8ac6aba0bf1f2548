"""Launches of work on a GPU that is not there: views launch nothing, what is written in places counts its places."""

import pytest
import torch
from torch.nn.functional import linear

from kvedu.kernels import launch, rmsnorm
from kvedu.kernels.launches import launches

META = torch.device("meta")


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device=META)


def test_views_and_memory_launch_nothing() -> None:
    x = empty(4, 6)
    with launches(kernels=False) as found:
        x.view(6, 4).T[1:].split(2)
        torch.empty_like(x)
        x.detach()
        torch.ones(3)  # on the host
    assert found == []


@torch.inference_mode()
def test_bytes_are_those_read_and_written() -> None:
    x, weight, pages = empty(4, 8), empty(16, 8), empty(100, 8)
    rows = empty(4, dtype=torch.int64)
    with launches(kernels=False) as found:
        y = linear(x, weight)
        pages[rows] = x
        pages.index_select(0, rows)
    assert [(one.name, one.bytes) for one in found] == [
        ("linear", (4 * 8 + 16 * 8 + 4 * 16) * 4), ("index_put_", 4 * 8 + 2 * 4 * 8 * 4), ("index_select", 4 * 8 + 2 * 4 * 8 * 4),
    ]  # fmt: skip
    assert y.device == META and not any(one.triton for one in found)


@pytest.mark.skipif(launch.missing() is not None, reason="kernels are planned here, and Triton does not exist on this system")
def test_the_librarys_kernels_are_planned_and_counted() -> None:
    """One launch with them, several without; and everything is as it was before."""
    before = launch.runs_on, launch.interpreted, launch._chip, launch.Launch.run
    x, weight = empty(4, 64, dtype=torch.bfloat16), empty(64, dtype=torch.bfloat16)
    with launches() as fused:
        rmsnorm.add_rmsnorm(x, x, weight, 1e-5)
    with launches(kernels=False) as apart:
        rmsnorm.add_rmsnorm_reference(x, x, weight, 1e-5)
    assert [one.triton for one in fused] == [True] and fused[0].bytes is None and len(apart) > 5
    assert (launch.runs_on, launch.interpreted, launch._chip, launch.Launch.run) == before


@pytest.mark.skipif(launch.missing() is not None, reason="kernels are planned here, and Triton does not exist on this system")
def test_a_kernel_that_cannot_take_its_tensors_says_so_and_nothing_stays_changed() -> None:
    before = launch.runs_on, launch.Launch.run
    with pytest.raises(launch.KernelError, match="last axis"), launches():
        rmsnorm.add_rmsnorm(empty(4, 64).T.contiguous().T, empty(4, 64), empty(64), 1e-5)
    assert (launch.runs_on, launch.Launch.run) == before
