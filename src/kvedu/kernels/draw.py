"""Draw a token from logits in one pass: the Gumbel trick, so that no probability is ever written.

``argmax(logits / temperature + g)`` with independent Gumbel noise ``g = -log(-log(u))`` is a draw from
``softmax(logits / temperature)`` (Gumbel 1954; Maddison et al. 2014). A softmax followed by a draw reads the
vocabulary three times and writes it once; this reads it once and writes a few bytes. Noise comes
from a counter (Philox 4x32-10, Salmon et al. 2011): a row's seed and the token's id give u, whatever the batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kvedu.kernels.launch import triton_wanted
from kvedu.units import Cost


COLDEST = 1e-30
"""Lower temperatures than this one count as it: what is divided by it stays finite, and the largest logit wins."""


def uniform(seeds_N: Tensor, count: int) -> Tensor:
    """``[N, count]`` fp32 in [0, 1) of counter i and key seed: what the kernel draws, computed by the definition.

    >>> uniform(torch.tensor([7]), 3).shape
    torch.Size([1, 3])
    """
    low = 0xFFFFFFFF
    i = torch.arange(count, dtype=torch.int64)[None, :].expand(len(seeds_N), -1)
    c0, c1, c2, c3 = i, *(torch.zeros_like(i) for _ in range(3))
    seeds = seeds_N.cpu().to(torch.int64)[:, None]
    k0, k1 = seeds & low, seeds >> 32 & low
    for _ in range(10):
        (high_b, low_b), (high_a, low_a) = _product(0xCD9E8D57, c2), _product(0xD2511F53, c0)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = k0 + 0x9E3779B9 & low, k1 + 0xBB67AE85 & low
    signed = torch.where(c0 >= 2**31, c0 - 2**32, c0)
    return torch.where(signed < 0, -signed - 1, signed).to(torch.float32) * 4.6566127342e-10


def _product(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """Upper and lower 32 bits of a product of two 32-bit numbers, without overflowing int64."""
    b_low, b_high = b & 0xFFFF, b >> 16
    low, high = a * b_low, a * b_high
    middle = high + (low >> 16)
    return middle >> 16, (middle & 0xFFFF) << 16 | low & 0xFFFF


def draw_reference(logits_NV: Tensor, temperature_N: Tensor, seeds_N: Tensor, least_N: Tensor | None = None) -> Tensor:
    """The definition in fp32: ids int64 ``[N]``. Temperature 0 is the plain maximum; logits below ``least`` are out.

    -1 for a row with NaN or plus infinity in it, and for one of which nothing finite is left.
    """
    if not logits_NV.shape[1]:
        return torch.full((len(logits_NV),), -1, dtype=torch.int64, device=logits_NV.device)
    logits = logits_NV.to(torch.float32)
    u = uniform(seeds_N, logits.shape[1]).clamp(max=1 - 2**-24).to(logits.device)
    noisy = logits / temperature_N[:, None].clamp(min=COLDEST) - torch.log(-torch.log(u))
    scores = torch.where(temperature_N[:, None] > 0, noisy, logits)
    if least_N is not None:
        scores = scores.masked_fill(logits < least_N[:, None], -math.inf)
    broken_N = (logits.isnan() | (logits == math.inf)).any(-1) | (scores.amax(-1) == -math.inf)
    return torch.where(broken_N, -1, scores.argmax(-1))


def draw(
    logits_NV: Tensor, temperature_N: Tensor, seeds_N: Tensor, least_N: Tensor | None = None, *, triton: bool | None = None,
    block: int | None = None,
) -> Tensor:  # fmt: skip
    """One id a row, int64 ``[N]``: ``draw_reference``, on a GPU in one read of the logits and without a host's help.

    -1 for a broken row, as there. ``temperature_N`` fp32 (0: greedy), ``seeds_N`` int64, a new one for each token of each request;
    ``least_N`` fp32 leaves out logits below it (top-k: the k-th largest; no tie is broken). ``block``: logits of a program.
    """
    if not triton_wanted(triton, logits_NV):
        return draw_reference(logits_NV, temperature_N, seeds_N, least_N)
    from kvedu.kernels.draw_triton import plan_draw

    ids_N = torch.empty(len(logits_NV), dtype=torch.int64, device=logits_NV.device)
    small = (x if x is None else x.contiguous() for x in (temperature_N, seeds_N, least_N))  # columns of a table, it may be
    for launch in plan_draw(logits_NV, *small, ids_N, block):
        launch.run()
    return ids_N


def cost(rows: int, vocabulary: int, bytes_per_element: int = 4) -> Cost:
    """Each logit read once, an id written; some 60 operations a logit for its noise (integer ones counted as FLOPs)."""
    return Cost(60 * rows * vocabulary, rows * vocabulary * bytes_per_element, 8 * rows)
