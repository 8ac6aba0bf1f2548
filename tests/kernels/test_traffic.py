"""Bytes of untiled attention, counted over PyTorch's own operations; and what a tiled program holds."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kvedu.kernels.launch import missing
from kvedu.kernels.traffic import naive_traffic, on_chip


class Moved(TorchDispatchMode):
    """Bytes of the storages that operations read and write; views move nothing."""

    read = written = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ("bmm", "mm", "_softmax"):
            self.read += sum(x.untyped_storage().nbytes() for x in args if isinstance(x, torch.Tensor))
            self.written += out.nbytes
        return out


@pytest.mark.parametrize("new, old, H, K, D", [(5, 0, 1, 1, 8), (7, 12, 6, 2, 16)])
def test_three_kernels_that_meet_in_memory(new, old, H, K, D):
    q, k, v = torch.randn(K, H // K * new, D), torch.randn(K, old + new, D), torch.randn(K, old + new, D)
    with Moved() as moved:
        torch.bmm(torch.softmax(torch.bmm(q, k.mT), -1), v)
    cost = naive_traffic(new, old, H, K, D, 4)
    assert (moved.read, moved.written) == (cost.read, cost.written)


@pytest.mark.skipif(missing() is not None, reason=f"no Triton: {missing()}")
def test_tiles_on_chip_are_those_that_the_kernel_asks_shared_memory_for():
    from kvedu.kernels.splits import shared_bytes

    for block_m, block_s, D in ((16, 64, 64), (128, 64, 128), (64, 32, 256)):
        accumulators = 4 * block_m * (D + 2)
        assert on_chip(block_m, block_s, D) - accumulators == shared_bytes(D, D, 2, block_m, block_s, 1)
