"""Batch-invariant mode: a token gets the same bits whatever else is in the batch.

Floating-point sums depend on their order, and fast kernels choose the order by the shape of the batch: how many
splits, which tile, which instruction. Then greedy output can depend on the neighbors. Here the
order is fixed: one tile shape for every step, keys cut at fixed places from each sequence's first token, every output
one chain of sums. The price is tiles that few rows do not fill, and splits that fit no batch in
particular, whose parts are written and read even where one would do: ``cost`` and ``attention_cost`` count it, the
bench measures it. (He et al. 2025, Defeating nondeterminism in LLM inference.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels import attention
from kvedu.kernels.launch import Chip, check_rows, chip_of, triton_wanted
from kvedu.kernels.paged_attention import PagedLayout, paged_attention, paged_attention_reference, unreadable
from kvedu.kernels.panel_linear import PanelWeight, panel_linear, panels_pay, step
from kvedu.kernels.softmax import merge_cost
from kvedu.kernels.splits import RESERVED, buffers_of, needed
from kvedu.units import Cost

ATTENTION = {"block_m": 32, "block_s": 64, "split_tokens": 1024, "edges": False, "warps": 4, "stages": 5}
"""The one shape of attention over 16 bits: 32 query rows, 64 keys, splits of 1,024 keys. ``attention_blocks`` has those of other heads."""
LINEAR = {"rows": 64, "outs": 64, "depth": 64}
"""The one tile of a matrix product, and how much of a row is taken at once."""


def attention_blocks(D: int, dtype: torch.dtype, chip: Chip) -> dict[str, int]:
    """The one shape for heads of D in this precision on this chip: what its registers hold, whatever the step.

    >>> attention_blocks(128, torch.float32, Chip.known(90))["block_s"]
    16
    """
    smaller = {"block_m": 16, "block_s": 16} if dtype == torch.float32 else {"block_m": 16, "block_s": 32} if chip.capability == 75 else {}
    shape = ATTENTION | (smaller or ({"block_s": 32} if D > 128 else {}))
    stages = 1 + 2 * (chip.stages - 1)  # changes no bit: how many tiles are on their way
    while stages > 1 and RESERVED + needed(D, dtype.itemsize, shape["block_m"], shape["block_s"], buffers_of(chip, stages, shape["block_m"])) > chip.shared:
        stages -= 2
    return shape | {"stages": stages}


def invariant_attention(
    q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, layout: PagedLayout, window: int | None = None, *, triton: bool | None = None,
    **blocks: int,
) -> Tensor:  # fmt: skip
    """``paged_attention`` with one fixed shape: bits depend on neither batch nor chunks. The CPU kernel keeps this as it is; what it
    cannot read goes through the reference, a row at a time (a tree whole)."""
    if not triton_wanted(triton, q_NHD):
        if unreadable(q_NHD, k_PCKD, v_PCKD, layout) is None:
            return paged_attention(q_NHD, k_PCKD, v_PCKD, layout, window, triton=False)
        if layout.family is None:
            each = [(b, first + i, 1, old + i) for b, (first, new, old) in enumerate(layout.rows.tolist()) for i in range(new)]
            which, rows = [row[0] for row in each], torch.tensor([row[1:] for row in each], dtype=torch.int64).view(-1, 3)
            layout = PagedLayout(layout.tables[which], rows)
        return paged_attention_reference(q_NHD, k_PCKD, v_PCKD, layout, window)
    fixed = attention_blocks(max(q_NHD.shape[2], v_PCKD.shape[3]), q_NHD.dtype, chip_of(q_NHD))
    return paged_attention(q_NHD, k_PCKD, v_PCKD, layout, window, triton=True, **fixed | blocks)


def invariant_linear_reference(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """The definition: each row alone, ``x W^T`` in fp32, rounded once."""
    rows = [row_I.to(torch.float32) @ weight_OI.to(torch.float32).T for row_I in x_NI]
    return torch.stack(rows).to(x_NI.dtype)


def invariant_linear(x_NI: Tensor, weight_OI: Tensor, *, triton: bool | None = None, **tile: int) -> Tensor:
    """``x W^T``, ``[N, out]``, each row with the same bits in any batch.

    On a GPU one tile shape for every N; on a CPU the panels of ``panel_linear`` where they run (which keep this by
    design), else a row at a time. ``tile``: ``rows``, ``outs``, ``depth``, powers of two from 16 on; the
    same in every call that shall agree.
    """
    if triton_wanted(triton, x_NI):
        from kvedu.kernels.invariant_triton import plan_linear

        check_rows(x=x_NI, weight=weight_OI)
        out_NO = x_NI.new_empty((len(x_NI), len(weight_OI)))
        plan_linear(x_NI, weight_OI, out_NO, **LINEAR | tile).run()
        return out_NO
    if panels_pay(weight_OI.dtype, x_NI.device) and weight_OI.shape[1] % step(weight_OI.dtype) == 0:
        return panel_linear(x_NI, PanelWeight(weight_OI))
    return torch.cat([row_1I @ weight_OI.T for row_1I in x_NI.split(1)])


def cost(rows: int, n_in: int, n_out: int, bytes_per_element: int = 2) -> Cost:
    """Of ``invariant_linear`` on a GPU: whole tiles are computed, so a single row costs as much as ``LINEAR["rows"]`` of them.

    Bytes as of any product: weight, input and output once (the weight again for each further row of tiles, mostly from cache).
    """
    tiles = -(-rows // LINEAR["rows"])
    flops = 2.0 * tiles * LINEAR["rows"] * n_in * (-(-n_out // LINEAR["outs"]) * LINEAR["outs"])
    return Cost(flops, (n_in * n_out + rows * n_in) * bytes_per_element, rows * n_out * bytes_per_element)


def attention_cost(rows: int, heads: int, kv_heads: int, head_dim: int, places: int, cached: int, bytes_per_element: int = 2) -> Cost:
    """Of ``invariant_attention`` on a GPU for rows of one token after ``cached`` others: attention, its parts, their merge.

    ``places`` are those of the step's longest table (pages times their size): they decide how many cuts there are,
    ``ceil(places / 1024)``, and each leaves ``rows * heads * head_dim`` numbers in fp32, written once and read once by the merge where
    it is not empty; a log-sum too, which is read even so.
    """
    plain = rows * attention.cost(1, cached, heads, kv_heads, head_dim, bytes_per_element)
    cuts, used = (-(-n // ATTENTION["split_tokens"]) for n in (places, cached + 1))
    merged = merge_cost(rows, heads, used, head_dim, bytes_per_element)
    read = plain.read + merged.read + 4 * rows * heads * (cuts - used)
    return Cost(plain.flops + merged.flops, read, plain.written + 4 * rows * heads * cuts * (head_dim + 1))
