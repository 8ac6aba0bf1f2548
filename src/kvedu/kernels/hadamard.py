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
    """The same as one matrix product; computed in fp32, returned in x's dtype. Any shape ``[..., D]``; twice gives x back.

    >>> hadamard(torch.tensor([8.0, 0.0, 0.0, 0.0])).tolist()    # an outlier, spread
    [4.0, 4.0, 4.0, 4.0]
    """
    with torch.inference_mode(False):
        matrix_DD = _matrix(x.shape[-1], x.device)
    return (x.to(torch.float32) @ matrix_DD).to(x.dtype)


@functools.cache
def _matrix(length: int, device: torch.device) -> Tensor:
    """The whole matrix ``[D, D]``, block-diagonal; symmetric."""
    one = torch.ones(1, 1, device=device)
    while len(one) < block_of(length):
        one = torch.cat((torch.cat((one, one), 1), torch.cat((one, -one), 1)))
    return torch.block_diag(*[one / math.sqrt(len(one))] * (length // len(one)))


def cost(vectors: int, length: int, bytes_per_element: int = 2) -> Cost:
    """Work of turning ``vectors`` heads by the matrix product; reads and writes each element once."""
    size = vectors * length * bytes_per_element
    return Cost(2 * vectors * length * length, size, size)
