"""Softmax in parts: a row too long for one tile, and results over parts of a row put together.

The *online* softmax (Milakov and Gimelshein 2018) walks over a row once, with a running maximum m and a running sum l
of ``2 ** (x - m)``; when m grows, what was summed so far shrinks by ``2 ** (m_old - m_new)``. The same step joins
two parts that were done apart: a part needs to leave only its normalized result and its *log-sum*
``m + log2(l)``. That is what lets a cache be split over many programs (flash-decoding), or a
shared prefix be attended to once (cascade attention). Base 2, since that is what a GPU's exponential computes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels.launch import check_rows, graded, triton_wanted
from kvedu.units import Cost


def softmax_reference(x_NV: Tensor) -> Tensor:
    """The definition over the last axis, in fp32; result in x's dtype. A row that is all -inf gives NaN."""
    weights = (x_NV.to(torch.float32) - x_NV.to(torch.float32).amax(-1, keepdim=True)).exp()
    return (weights / weights.sum(-1, keepdim=True)).to(x_NV.dtype)


def softmax(x_NV: Tensor, *, triton: bool | None = None, block: int | None = None) -> Tensor:
    """Softmax of each row ``[N, V]`` (or more leading axes), the last axis dense. ``block``: elements of a tile, a power of two.

    The kernel gives no gradient: where one is wanted PyTorch answers.

    >>> softmax(torch.tensor([[0.0, 0.0, -torch.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    if graded(x_NV) or not triton_wanted(triton, x_NV):
        return torch.softmax(x_NV, -1)
    from kvedu.kernels.softmax_triton import plan_softmax

    check_rows(x=x_NV)
    out_NV = torch.empty_like(x_NV, memory_format=torch.contiguous_format)
    if x_NV.numel():
        V = x_NV.shape[-1]
        plan_softmax(x_NV if x_NV.dim() == 2 else x_NV.reshape(-1, V), out_NV.view(-1, V), block).run()
    return out_NV


def merge_reference(parts_NHSD: Tensor, logs_NHS: Tensor) -> Tensor:
    """Results over S parts of the keys, weighted by 2 ** their base-2 log-sums: ``[N, H, D]`` in fp32.

    A part that saw nothing has log-sum -inf, and whatever its result holds, NaN too, does not count. A row
    that saw nothing in any part gives 0.
    """
    top_NH1 = logs_NHS.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    weights_NHS = torch.exp2(logs_NHS - top_NH1)
    weights_NHS = weights_NHS / weights_NHS.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return (parts_NHSD.to(torch.float32).where(logs_NHS[..., None] > -torch.inf, 0) * weights_NHS[..., None]).sum(2)


def merge(
    parts_NHSD: Tensor, logs_NHS: Tensor, dtype: torch.dtype = torch.float32, *, triton: bool | None = None
) -> Tensor:
    """``merge_reference`` as one kernel on a GPU; result in ``dtype``."""
    if not triton_wanted(triton, parts_NHSD):
        return merge_reference(parts_NHSD, logs_NHS).to(dtype)
    from kvedu.kernels.softmax_triton import plan_merge

    N, H, _, D = parts_NHSD.shape
    out_NHD = parts_NHSD.new_empty((N, H, D), dtype=dtype)
    plan_merge(parts_NHSD.contiguous(), logs_NHS.contiguous(), out_NHD).run()
    return out_NHD


def cost(rows: int, width: int, bytes_per_element: int = 2) -> Cost:
    """Of ``softmax``: each element read twice (once for maximum and sum, once for the weights), written once; 5 FLOPs."""
    return Cost(5 * rows * width, 2 * rows * width * bytes_per_element, rows * width * bytes_per_element)


def merge_cost(rows: int, heads: int, parts: int, head_dim: int, bytes_per_element: int = 2) -> Cost:
    """Of ``merge``: fp32 parts and log-sums read once, the result written once; 2 FLOPs for each element of a part."""
    read = 4 * rows * heads * parts * (head_dim + 1)
    return Cost(2 * rows * heads * parts * head_dim, read, rows * heads * head_dim * bytes_per_element)
