"""A Hadamard rotation of each head: what one channel held, all hold a little of.

Multiplying by an orthonormal matrix changes no product of a query and a key, as long as both are turned.
With all entries of one magnitude, a channel fifty times as large as its neighbors becomes fifty times
1/sqrt(D) in each of D channels: nothing stands out, and a few bits reach everything. The matrix is its own inverse.
Source: QuaRot (Ashkboos et al. 2024), whose K/V rotation this is. A head size that is no power of two is
turned in blocks (80 = five blocks of 16), where they use known matrices of other orders.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from kvedu.errors import CacheError
from kvedu.kernels import native
from kvedu.units import Cost


def block_of(length: int) -> int:
    """The largest power of two that divides a head; the rotation mixes channels within blocks of so many.

    Raises ``CacheError`` for an odd head: nothing would be mixed.

    >>> block_of(64), block_of(80)
    (64, 16)
    """
    block = length & -length
    if block < 2:
        raise CacheError(
            f"a head of {length} elements cannot be rotated: a Hadamard matrix here is a power of two, and none but 1 "
            "divides it. Use groups along the tokens, or set channels apart"
        )
    return block


def hadamard_reference(x: Tensor) -> Tensor:
    """The definition, along the last axis: within each block of n, y_j = sum over i of (-1)^popcount(i & j) x_i / sqrt(n)."""
    n = block_of(x.shape[-1])
    signs = torch.tensor([[(-1.0) ** (i & j).bit_count() for j in range(n)] for i in range(n)], device=x.device)
    return (x.to(torch.float32).unflatten(-1, (-1, n)) @ signs / math.sqrt(n)).flatten(-2).to(x.dtype)


def hadamard(x: Tensor) -> Tensor:
    """The same in log2 rounds of sums and differences where the CPU kernel runs (the same bits in any batch), else as one matrix product.

    Computed in fp32, returned in x's dtype. Any shape ``[..., D]``; twice gives x back.

    >>> hadamard(torch.tensor([8.0, 0.0, 0.0, 0.0])).tolist()    # an outlier, spread
    [4.0, 4.0, 4.0, 4.0]
    """
    if native.usable(x) and x.numel():
        x, D = x.contiguous(), x.shape[-1]
        y = torch.empty_like(x)
        native.library().kvedu_hadamard(
            x.dtype is torch.float32, x.data_ptr(), y.data_ptr(), x.numel() // D, D, block_of(D), torch.get_num_threads()
        )
        return y
    return (x.to(torch.float32) @ _matrix(x.shape[-1], x.device)).to(x.dtype)


@functools.cache
def _matrix(length: int, device: torch.device) -> Tensor:
    """The whole matrix ``[D, D]``, block-diagonal; symmetric."""
    with torch.inference_mode(False):  # it outlives the pass that first wants it
        one = torch.ones(1, 1, device=device)
        while len(one) < block_of(length):
            one = torch.cat((torch.cat((one, one), 1), torch.cat((one, -one), 1)))
        return torch.block_diag(*[one / math.sqrt(len(one))] * (length // len(one)))


def cost(vectors: int, length: int, bytes_per_element: int = 2) -> Cost:
    """Work of turning ``vectors`` heads by butterflies; reads and writes each element once."""
    size = vectors * length * bytes_per_element
    return Cost(vectors * length * (1 + math.log2(block_of(length))), size, size)
