"""Attention of a ragged step over keys and values that lie in pages, found through block tables.

Sequence b's token t lies in page ``tables[b, t // C]`` at offset ``t % C``; its new queries are the
last of its tokens and see all earlier ones (or the last W of them); in a token tree, of the
new ones its ancestors only. A contiguous cache is the special case of one long page per sequence. Definition below, in plain PyTorch: gather, then
``attention_reference``. The fast path is ``native/attention.cpp``: it reads the pages where they
lie, all query heads of a KV head at once, every sequence of the step in one call (Kwon et al. 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence

import torch
from torch import Tensor

from kvedu.kernels import native
from kvedu.kernels.attention import attention_reference, cost, visible_causal
from kvedu.kernels.family import family, visible_in_family

__all__ = ["PagedLayout", "cost", "paged_attention", "paged_attention_reference", "paged_write", "takes"]


@dataclass(frozen=True)
class PagedLayout:
    """Where the sequences of a step have their tokens: made once a step, the same for every layer of one window.

    ``tables`` int32 ``[B, J]`` (unused entries 0), ``rows`` int64 ``[B, 3]``: first row in the step's ragged
    tensors, new tokens, committed tokens. ``family`` int64 ``[N, words]`` says who sees whom in trees (see
    ``kernels/family``; rows of 0 for sequences that are none); None where no sequence is one.
    """

    tables: Tensor
    rows: Tensor
    family: Tensor | None = None

    @staticmethod
    def of(
        tables: Sequence[Sequence[int]],
        rows: Sequence[tuple[int, int, int]],
        parents: Sequence[Sequence[int] | None] = (),
        window: int | None = None,
    ) -> PagedLayout:
        """From lists; tables are padded to equal length. ``parents`` of each sequence's tree (None: no tree), which
        a ``window`` cuts too."""
        longest = max(map(len, tables))
        padded = [[*table, *[0] * (longest - len(table))] for table in tables]
        trees = family(rows, parents, window) if any(tree is not None for tree in parents) else None
        return PagedLayout(torch.tensor(padded, dtype=torch.int32), torch.tensor(rows, dtype=torch.int64), trees)


def paged_attention_reference(
    q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, layout: PagedLayout, window: int | None = None
) -> Tensor:
    """The definition, a sequence at a time: ``[N, H, D]``."""
    C, outs = k_PCKD.shape[1], []
    for table, (first, new, old) in zip(layout.tables.tolist(), layout.rows.tolist()):
        pages = torch.tensor(table[: -(-(old + new) // C)])
        k_SKD, v_SKD = (x[pages].flatten(0, 1)[: old + new] for x in (k_PCKD, v_PCKD))
        visible = _visible(layout, first, new, old, window)
        outs.append(attention_reference(q_NHD[first : first + new], k_SKD, v_SKD, visible))
    return torch.cat(outs)


def _visible(layout: PagedLayout, first: int, new: int, old: int, window: int | None) -> Tensor:
    """Boolean ``[T, S]`` of one sequence: by place, or by position and path in a tree."""
    places = torch.arange(old + new)
    if layout.family is None or not layout.family[first].any():
        return visible_causal(places[old:], places, window)
    kin_TT = visible_in_family(layout.family[first : first + new], new)
    positions_T = old + kin_TT.sum(dim=1) - 1  # a path that a window has cut reaches no committed token: any depth will do
    return torch.cat((visible_causal(positions_T, places[:old], window), kin_TT), dim=1)


def takes(q_NHD: Tensor, k_PCKD: Tensor) -> bool:
    """Whether ``paged_attention`` can serve these queries over these pages; else attend by gathering."""
    return native.usable(q_NHD, k_PCKD) and q_NHD.shape[2] % 2 == 0


def paged_attention(
    q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, layout: PagedLayout, window: int | None = None
) -> Tensor:
    """The kernel, where ``takes`` says so: ``[N, H, D]``.

    Pages may have any strides (K's and V's equal) as long as the last axis is dense and D is even. Places
    that no token has been written to are never read.
    """
    N, H, D = q_NHD.shape
    _, C, K, _ = k_PCKD.shape
    if k_PCKD.stride() != v_PCKD.stride() or D % 2 or H % K:
        raise ValueError(f"the kernel wants K and V of equal strides, D even, H a multiple of K; got D={D}, H={H}, K={K}")
    q_NHD, out_NHD = q_NHD.contiguous(), q_NHD.new_empty((N, H, D))
    native.library().kvedu_attention(
        q_NHD.dtype is torch.float32, q_NHD.data_ptr(), k_PCKD.data_ptr(), v_PCKD.data_ptr(), out_NHD.data_ptr(),
        layout.tables.data_ptr(), layout.rows.data_ptr(),
        None if layout.family is None else layout.family.data_ptr(), 0 if layout.family is None else layout.family.shape[1],
        *layout.tables.shape,
        H, K, D, C, *k_PCKD.stride()[:3], window or 0, 1 / math.sqrt(D), torch.get_num_threads(),
    )  # fmt: skip
    return out_NHD


def paged_write(k_NKD: Tensor, v_NKD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, slots_N: Tensor) -> None:
    """Put new keys and values into their places: slot ``page * C + offset``, int64 ``[N]``.

    Native where it can be (one pass for both), else by index. Pages and new rows may have any strides.
    """
    if native.usable(k_NKD, v_NKD, k_PCKD, v_PCKD) and _rows_dense(k_NKD, v_NKD) and k_PCKD.stride() == v_PCKD.stride():
        N, K, D = k_NKD.shape
        native.library().kvedu_write(
            k_NKD.dtype is torch.float32, k_NKD.data_ptr(), v_NKD.data_ptr(), k_NKD.stride(0), v_NKD.stride(0),
            k_PCKD.data_ptr(), v_PCKD.data_ptr(), slots_N.data_ptr(), N, K, D, k_PCKD.shape[1], *k_PCKD.stride()[:3], torch.get_num_threads(),
        )  # fmt: skip
        return
    C = k_PCKD.shape[1]
    for x, new in ((k_PCKD, k_NKD), (v_PCKD, v_NKD)):
        x[slots_N // C, slots_N % C] = new.to(x.dtype)


def _rows_dense(*tensors: Tensor) -> bool:
    """Whether each row ``[K, D]`` is one run of memory and both are of one shape."""
    return tensors[0].shape == tensors[1].shape and all(x.stride(1) == x.shape[2] for x in tensors)
