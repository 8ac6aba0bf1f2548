"""Rotate new queries and keys to their positions and put keys and values into their pages, in one pass.

Three operations of every layer touch the same rows: rotate q, rotate k, write k and v. Done apart, keys are
read, written, read and written again; done together each number crosses the bus once each way.
A slot is ``page * C + offset`` (``caches/paged``); slot -1 writes nothing, for the padded rows of a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels.launch import triton_wanted
from kvedu.kernels.paged_attention import paged_write
from kvedu.kernels.rope import rotate
from kvedu.units import Cost


def rope_write_reference(
    q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, cos: Tensor, sin: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, slots_N: Tensor
) -> Tensor:
    """The three operations one after the other. Writes into the pages; returns the rotated queries."""
    kept, slots_N = slots_N >= 0, slots_N.to(torch.int64)
    paged_write(rotate(k_NKD, cos, sin)[kept], v_NKD[kept], k_PCKD, v_PCKD, slots_N[kept])
    return rotate(q_NHD, cos, sin)


def rope_write(
    q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, cos: Tensor, sin: Tensor, k_PCKD: Tensor, v_PCKD: Tensor,
    slots_N: Tensor, *, triton: bool | None = None, heads: int | None = None,
) -> Tensor:  # fmt: skip
    """Write a step's keys (rotated) and values into their pages, and return its queries rotated, ``[N, H, D]``.

    ``cos`` and ``sin`` are ``kernels.rope.cos_sin`` of the step's positions, fp32 or the queries' dtype,
    ``[N, 1, dim]`` with ``dim`` up to D (the rest of a head passes unchanged); ``slots_N`` of any integers. Any strides whose last
    axis is dense. ``heads``: heads of a program, a power of two. Inputs are never written to, so a
    launch may be repeated. Cost: ``cost``.

    >>> from kvedu.kernels.rope import cos_sin
    >>> from kvedu.rope_config import RopeConfig
    >>> k_PCKD, v_PCKD = torch.zeros(2, 4, 1, 2), torch.zeros(2, 4, 1, 2)
    >>> cos, sin = cos_sin(RopeConfig(dim=2), torch.tensor([0]), torch.float32)
    >>> x = torch.ones(1, 1, 2)
    >>> rope_write(x, x, 3 * x, cos, sin, k_PCKD, v_PCKD, torch.tensor([6])).tolist(), v_PCKD[1, 2].tolist()
    ([[[1.0, 1.0]]], [[3.0, 3.0]])
    """
    if not triton_wanted(triton, q_NHD):
        cos, sin = (x.to(q_NHD.dtype) for x in (cos, sin))
        return rope_write_reference(q_NHD, k_NKD, v_NKD, cos, sin, k_PCKD, v_PCKD, slots_N)
    from kvedu.kernels.rope_write_triton import plan_rope_write

    out_NHD = torch.empty(q_NHD.shape, dtype=q_NHD.dtype, device=q_NHD.device)
    plan_rope_write(q_NHD, k_NKD, v_NKD, cos, sin, k_PCKD, v_PCKD, slots_N, out_NHD, heads=heads).run()
    return out_NHD


def cost(tokens: int, heads: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2, table_bytes: int = 4) -> Cost:
    """Each query, key and value is read once and written once, each token's table row (cos, sin) and slot once."""
    elements = tokens * (heads + 2 * kv_heads) * head_dim
    tables = tokens * (head_dim * table_bytes + 8)
    return Cost(3 * tokens * (heads + kv_heads) * head_dim, elements * bytes_per_element + tables, elements * bytes_per_element)
