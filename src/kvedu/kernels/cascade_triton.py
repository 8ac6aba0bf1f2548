"""Cascade attention as launches: the prefix for all rows at once, the rest for each sequence, and a merge of both."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels.cascade import SharedPrefix
from kvedu.kernels.launch import Chip, KernelError, Launch
from kvedu.kernels.paged_attention import PagedLayout
from kvedu.kernels.paged_attention_triton import plan_attention
from kvedu.kernels.softmax_triton import plan_merge
from kvedu.kernels.splits import blocks_for, splits_for


def plan_cascade(
    q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, prefix: SharedPrefix, layout: PagedLayout, out_NHD: Tensor, *, chip: Chip,
    splits: tuple[int, int] | None = None, block_m: int | None = None, block_s: int | None = None, warps: int | None = None,
    stages: int | None = None,
) -> list[Launch]:  # fmt: skip
    """Three launches. The prefix's rows are one sequence to the kernel, without a causal mask, so a block holds many queries."""
    (N, H, D), (_, C, K, DV), B = q_NHD.shape, v_PCKD.shape, len(layout.tables)
    if layout.family is not None:
        raise KernelError("a cascade has no token trees; use paged_attention, with the prefix's pages before each table")
    if not N or not B:
        return []
    blocks = dict(block_m=block_m, block_s=block_s, warps=warps, stages=stages)
    G = H // K
    many = blocks_for(chip, G * N, G, max(D, DV), q_NHD.element_size())
    few = blocks_for(chip, G * N / B, G, max(D, DV), q_NHD.element_size())
    if splits is None:
        splits = (
            splits_for(chip, K * -(-N * G // many["block_m"]), prefix.table.shape[1] * C, many["block_s"]),
            splits_for(chip, K * B, layout.tables.shape[1] * C, few["block_s"]),
        )
    parts = q_NHD.new_empty((N, H, sum(splits), DV), dtype=torch.float32)
    logs = q_NHD.new_empty((N, H, sum(splits)), dtype=torch.float32)
    cut = splits[0]  # of the prefix; where products take their operands from registers, two programs of 4 warps have too few for two buffers
    eight = 8 if chip.stages > 1 and not chip.wgmma else None
    shared = plan_attention(
        q_NHD, k_PCKD, v_PCKD, prefix.table, prefix.rows, out_NHD, chip=chip, causal=False, splits=cut,
        parts=(parts[:, :, :cut], logs[:, :, :cut]), **blocks | {"warps": warps or eight},
    )  # fmt: skip
    own = plan_attention(
        q_NHD, k_PCKD, v_PCKD, layout.tables, layout.rows, out_NHD, chip=chip, splits=splits[1], one_each=layout.one_each,
        parts=(parts[:, :, cut:], logs[:, :, cut:]), **blocks,
    )  # fmt: skip
    return [*shared, *own, plan_merge(parts, logs, out_NHD)]
