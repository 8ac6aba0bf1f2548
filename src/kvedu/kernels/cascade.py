"""Cascade attention: sequences that share a prefix read its keys and values once, together.

B sequences behind one system prompt each read the prompt's pages in an ordinary step: B times the bytes for
the same numbers. Here all their queries attend to the prefix as if they were rows of one sequence, then
each to its own rest, and the two results are put together by their log-sums (``softmax.merge``; FlashInfer's cascade,
Ye et al. 2024; Hydragen, Juravsky et al. 2024). Bytes fall by nearly B over the prefix; the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import torch
from torch import Tensor

from kvedu.kernels.attention import attention_reference, visible_causal
from kvedu.kernels.launch import chip_of, triton_wanted
from kvedu.kernels.paged_attention import PagedLayout
from kvedu.units import Cost


@dataclass(frozen=True)
class SharedPrefix:
    """Where the shared tokens lie: ``table`` int32 ``[1, J]``; ``rows`` int64 ``[1, 3]``: 0, rows of the step, shared tokens."""

    table: Tensor
    rows: Tensor

    @staticmethod
    def of(pages: Sequence[int], tokens: int, n_rows: int, device: torch.device | str = "cpu") -> SharedPrefix:
        """The first ``tokens`` in these pages, seen by all ``n_rows`` new tokens of a step."""
        table, rows = torch.tensor([list(pages)], dtype=torch.int32), torch.tensor([[0, n_rows, tokens]])
        return SharedPrefix(table.to(device), rows.to(device))


def cascade_attention_reference(
    q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, prefix: SharedPrefix, layout: PagedLayout
) -> Tensor:
    """The definition: each sequence's keys are the prefix and then its own, ``[N, H, Dv]``."""
    C, shared, outs = k_PCKD.shape[1], int(prefix.rows[0, 2]), []
    for table, (first, new, old) in zip(layout.tables.tolist(), layout.rows.tolist()):
        sides = []
        for x_PCKD in (k_PCKD, v_PCKD):
            head = x_PCKD[prefix.table[0].long()].flatten(0, 1)[:shared]
            own = x_PCKD[table[: -(-(old + new) // C)]].flatten(0, 1)[: old + new]
            sides.append(torch.cat((head, own)))
        places = torch.arange(shared + old + new, device=q_NHD.device)
        visible = visible_causal(places[shared + old :], places)
        outs.append(attention_reference(q_NHD[first : first + new], *sides, visible))
    return torch.cat(outs) if outs else q_NHD.new_empty((0, q_NHD.shape[1], v_PCKD.shape[3]))


def cascade_attention(
    q_NHD: Tensor,
    k_PCKD: Tensor,
    v_PCKD: Tensor,
    prefix: SharedPrefix,
    layout: PagedLayout,
    *,
    triton: bool | None = None,
    splits: tuple[int, int] | None = None,
    block_m: int | None = None,
    block_s: int | None = None,
    warps: int | None = None,
    stages: int | None = None,
) -> Tensor:
    """Attention of a step whose sequences all begin with ``prefix``: ``[N, H, Dv]``.

    ``layout`` is that of the rest: each sequence's own pages, and its committed tokens *after* the prefix. No windows
    and no trees. ``splits`` of the prefix and of the rest have a rule; block sizes as in ``paged_attention``.
    """
    if not triton_wanted(triton, q_NHD):
        return cascade_attention_reference(q_NHD, k_PCKD, v_PCKD, prefix, layout)
    from kvedu.kernels.cascade_triton import plan_cascade

    out_NHD = q_NHD.new_empty((*q_NHD.shape[:2], v_PCKD.shape[3]))
    planned = plan_cascade(
        q_NHD, k_PCKD, v_PCKD, prefix, layout, out_NHD, chip=chip_of(q_NHD), splits=splits,
        block_m=block_m, block_s=block_s, warps=warps, stages=stages,
    )  # fmt: skip
    for launch in planned:
        launch.run()
    return out_NHD


def cost(
    sequences: int, prefix: int, rest: int, heads: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2
) -> Cost:
    """One decode step of B sequences: K and V of the prefix read once, of each rest (its new token included) once.

    As long as a group's rows fit one block; FLOPs are those of plain attention.
    """
    kv = 2 * (prefix + sequences * rest) * kv_heads * head_dim
    q = sequences * heads * head_dim
    pairs = sequences * (prefix + rest)
    return Cost(4 * head_dim * heads * pairs, (kv + q) * bytes_per_element, q * bytes_per_element)
