"""Attention over quantized pages with a full-precision tail, each query seeing what is old enough as codes.

The query with i tokens before it sees the first ``coded(i)`` of them as codes and the others, its own among
them, as they came: what it would see if tokens came one by one. So what a query sees depends on positions
alone, not on how its prompt was cut into steps. Definition below: both versions of the keys one after
the other, and a mask that shows each query one of them. ``native/quantized.cpp`` reads the codes where they lie and turns them into numbers
in the cache of a core, 64 keys at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kvedu.kernels import native
from kvedu.kernels.attention import attention_reference, visible_causal
from kvedu.kernels.launch import chip_of, graded, triton_wanted
from kvedu.kernels.quantized_pages import CodedPages, Exact
from kvedu.units import Cost


@dataclass(frozen=True)
class QuantizedLayout:
    """Where the sequences of a step have their tokens; made once a step, the same for every layer.

    ``tables`` int32 ``[B, J]``; ``rows`` int64 ``[B, 4]``: first row in the step's ragged tensors, new tokens,
    tokens before them, slot of the tail. The last ``residual`` tokens before a query, and what fills no
    ``unit`` of tokens (both sides' groups), are seen as they came. ``one_each`` as in ``PagedLayout``.
    """

    tables: Tensor
    rows: Tensor
    residual: int = 0
    unit: int = 1
    one_each: bool = False

    def coded(self, before: Tensor) -> Tensor:
        """Tokens that are seen as codes by queries with so many before them."""
        return (before - self.residual).clamp(min=0) // self.unit * self.unit


def quantized_attention_reference(
    q_NHD: Tensor,
    keys: CodedPages,
    values: CodedPages,
    k: Exact,
    v: Exact,
    layout: QuantizedLayout,
    window: int | None = None,
) -> Tensor:
    """The definition, a sequence at a time: ``[N, H, D]``."""
    outs = []
    for table, (first, new, start, slot) in zip(layout.tables.tolist(), layout.rows.tolist()):
        places = torch.arange(start + new, device=q_NHD.device)
        border_T = layout.coded(places[start:])
        oldest, coded = int(border_T[0]), int(border_T[-1])  # the first that is seen as it came, the last seen as a code
        both = []
        for pages, (fresh_NKD, tails) in ((keys, k), (values, v)):
            W = tails.shape[1]
            tail_SKD = tails[slot, [t % W for t in range(oldest, start)]] if oldest < start else fresh_NKD[:0]
            new_TKD = fresh_NKD[first + max(0, oldest - start) : first + new]
            both.append(torch.cat((pages.read(table, coded, q_NHD.dtype), tail_SKD, new_TKD)))
        seen_TS = visible_causal(places[start:], places, window)
        as_code_TS = places < border_T[:, None]
        visible = torch.cat(((seen_TS & as_code_TS)[:, :coded], (seen_TS & ~as_code_TS)[:, oldest:]), dim=1)
        outs.append(attention_reference(q_NHD[first : first + new], *both, visible))
    return torch.cat(outs)


def takes(q_NHD: Tensor, k: Exact, v: Exact, *pages: CodedPages) -> bool:
    """Whether ``quantized_attention`` can serve this step; else attend over decoded keys.

    On a GPU the format decides too, and on compute capability 7.5 steps of more than 64 rows are quicker through PyTorch.
    """
    if q_NHD.device.type != "cpu":
        if not triton_wanted(None, q_NHD) or graded(q_NHD):
            return False
        from kvedu.kernels.paged_attention_triton import fits
        from kvedu.kernels.coded_step import refusal

        chip = chip_of(q_NHD)
        held = chip.products_pay(len(q_NHD)) and not any(refusal(side, q_NHD) for side in pages)
        return held and fits(chip, q_NHD.shape[2], q_NHD.dtype, q_NHD.shape[1] // k.fresh.shape[1])
    if not native.usable(q_NHD, *k, *v) or q_NHD.shape[2] % 2:
        return False
    return all(x.fresh.stride(1) == x.fresh.shape[2] and x.tails.is_contiguous() for x in (k, v))


def quantized_attention(
    q_NHD: Tensor,
    keys: CodedPages,
    values: CodedPages,
    k: Exact,
    v: Exact,
    layout: QuantizedLayout,
    window: int | None = None,
    *,
    triton: bool | None = None,
    **blocks: int | None,
) -> Tensor:
    """The kernel, where ``takes`` says so: ``[N, H, D]``. Codes of units that are not complete are never read.

    ``triton`` and ``blocks`` as in ``paged_attention``: on a GPU ``quantized_attention_triton``.
    """
    N, H, D = q_NHD.shape
    if not N or not len(layout.rows):
        return q_NHD.new_empty((N, H, D))
    if triton_wanted(triton, q_NHD):
        from kvedu.kernels.quantized_attention_triton import plan_quantized_attention

        out_NHD = q_NHD.new_empty((N, H, D))
        planned = plan_quantized_attention(
            q_NHD, keys, values, k, v, layout.tables, layout.rows, out_NHD, chip=chip_of(q_NHD),
            residual=layout.residual, unit=layout.unit, window=window, one_each=layout.one_each, **blocks,
        )  # fmt: skip
        for launch in planned:
            launch.run()
        return out_NHD
    K = k.fresh.shape[1]
    q_NHD, out_NHD = q_NHD.contiguous(), q_NHD.new_empty((N, H, D))
    native.library().kvedu_quantized_attention(
        q_NHD.dtype is torch.float32, q_NHD.data_ptr(), out_NHD.data_ptr(), keys.words, values.words,
        k.fresh.data_ptr(), v.fresh.data_ptr(), k.fresh.stride(0), v.fresh.stride(0), k.tails.data_ptr(), v.tails.data_ptr(),
        layout.tables.data_ptr(), layout.rows.data_ptr(), *layout.tables.shape, H, K, D, keys.page_size, k.tails.shape[1],
        layout.residual, layout.unit, window or 0, 1 / math.sqrt(D), torch.get_num_threads(),
    )  # fmt: skip
    return out_NHD


def cost(cached_tokens: int, heads: int, kv_heads: int, head_dim: int, key_bits: float, value_bits: float) -> Cost:
    """Work of one decode query over so many codes: FLOPs of attention, a multiply and an add for each code, bits read once.

    ``key_bits`` and ``value_bits`` are stored bits per element, scales included (``Quantized.bits_per_element``).
    """
    elements = cached_tokens * kv_heads * head_dim
    return Cost(4 * head_dim * heads * cached_tokens + 4 * elements, elements * (key_bits + value_bits) / 8, 0)
