"""Attention of a ragged step over keys and values that lie in pages, found through block tables.

Sequence b's token t lies in page ``tables[b, t // C]`` at offset ``t % C``; its new queries are the
last of its tokens and see all earlier ones (or the last W of them); in a token tree, of the
new ones its ancestors only. A contiguous cache is the special case of one long page per sequence. Definition below,
in plain PyTorch: gather, then ``attention_reference``. The fast paths read the pages where they lie, all query heads
of a KV head at once, every sequence of the step in one call (Kwon et al. 2023): ``native/attention.cpp`` on a CPU,
``paged_attention_triton`` on a GPU.
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
from kvedu.kernels.launch import KernelError, chip_of, graded, triton_wanted
from kvedu.kernels.transfer import move

__all__ = ["PagedLayout", "cost", "paged_attention", "paged_attention_reference", "paged_write", "takes"]


@dataclass(frozen=True)
class PagedLayout:
    """Where the sequences of a step have their tokens: made once a step, the same for every layer of one window.

    ``tables`` int32 ``[B, J]`` (unused entries 0), ``rows`` int64 ``[B, 3]``: first row in the step's ragged
    tensors, new tokens, committed tokens. ``family`` int64 ``[N, words]`` says who sees whom in trees (see
    ``kernels/family``; rows of 0 for sequences that are none); None where no sequence is one. ``one_each`` promises that every
    sequence has one new token, in row b the one of sequence b, whatever ``rows`` will hold: a shorter way through a GPU's kernel.
    """

    tables: Tensor
    rows: Tensor
    family: Tensor | None = None
    one_each: bool = False

    @staticmethod
    def of(
        tables: Sequence[Sequence[int]],
        rows: Sequence[tuple[int, int, int]],
        parents: Sequence[Sequence[int] | None] = (),
        window: int | None = None,
        device: torch.device | str = "cpu",
    ) -> PagedLayout:
        """From lists; tables are padded to equal length. ``parents`` of each sequence's tree (None: no tree), which
        a ``window`` cuts too."""
        longest = max(map(len, tables), default=0)
        padded = [[*table, *[0] * (longest - len(table))] for table in tables]
        trees = family(rows, parents, window) if any(tree is not None for tree in parents) else None
        one_each = all((first, new) == (b, 1) for b, (first, new, _) in enumerate(rows))
        tables_BJ = torch.tensor(padded, dtype=torch.int32, device="cpu").view(len(padded), longest)
        layout = PagedLayout(tables_BJ, torch.tensor(rows, dtype=torch.int64, device="cpu").view(-1, 3), trees, one_each)
        return layout if torch.device(device).type == "cpu" else layout.to(device)

    def to(self, device: torch.device | str) -> PagedLayout:
        """The same layout on the device of the pages, where a kernel reads it; the host does not wait for the copy."""
        where = torch.device(device)
        moved = (None if x is None else move(x, where) for x in (self.tables, self.rows, self.family))
        return PagedLayout(*moved, self.one_each)


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
    return torch.cat(outs) if outs else q_NHD.new_empty((0, q_NHD.shape[1], v_PCKD.shape[3]))


def _visible(layout: PagedLayout, first: int, new: int, old: int, window: int | None) -> Tensor:
    """Boolean ``[T, S]`` of one sequence: by place, or by position and path in a tree."""
    places = torch.arange(old + new, device=layout.rows.device)
    if layout.family is None or not layout.family[first].any():
        return visible_causal(places[old:], places, window)
    kin_TT = visible_in_family(layout.family[first : first + new], new)
    positions_T = old + kin_TT.sum(dim=1) - 1  # a path that a window has cut reaches no committed token: any depth will do
    return torch.cat((visible_causal(positions_T, places[:old], window), kin_TT), dim=1)


def takes(q_NHD: Tensor, k_PCKD: Tensor) -> bool:
    """Whether ``paged_attention`` can serve these queries over these pages; else attend by gathering.

    On a GPU: where Triton runs, nobody asks for a gradient, and heads of this size fit the chip: up to 128 everywhere,
    256 where shared memory holds the tiles. Compute capability 7.5 has no bf16, and Triton's products use no
    tensor cores there: fp16, and steps of up to 64 rows; longer chunks are quicker through PyTorch.
    """
    if q_NHD.device.type == "cpu":
        return native.usable(q_NHD, k_PCKD) and q_NHD.shape[2] % 2 == 0
    if not triton_wanted(None, q_NHD) or q_NHD.dtype != k_PCKD.dtype or graded(q_NHD):
        return False
    from kvedu.kernels.paged_attention_triton import fits

    chip = chip_of(q_NHD)
    return chip.products_pay(len(q_NHD)) and fits(chip, q_NHD.shape[2], q_NHD.dtype, q_NHD.shape[1] // k_PCKD.shape[2])


def paged_attention(
    q_NHD: Tensor,
    k_PCKD: Tensor,
    v_PCKD: Tensor,
    layout: PagedLayout,
    window: int | None = None,
    *,
    triton: bool | None = None,
    **blocks: int | bool | None,
) -> Tensor:
    """The kernel, where ``takes`` says so: ``[N, H, D]``.

    Pages may have any strides as long as the last axis is dense; the CPU's kernel wants K's and V's equal and D
    even (``KernelError`` says what it cannot read). Places that no token has been written to are never read.

    ``triton`` None runs Triton where the tensors are on a GPU; True asks for it (on a CPU in its
    interpreter). Its block sizes and splits have a rule, or are given: ``block_m``, ``block_s``, ``splits``, ``warps``,
    ``stages``; ``split_tokens`` with a ``block_m`` gives every token the same bits whatever the step holds besides
   . The layout lies on the device of the pages.
    """
    if triton_wanted(triton, q_NHD):
        from kvedu.kernels.paged_attention_triton import plan_attention

        out_NHD = q_NHD.new_empty((*q_NHD.shape[:2], v_PCKD.shape[3]))
        planned = plan_attention(
            q_NHD, k_PCKD, v_PCKD, layout.tables, layout.rows, out_NHD,
            chip=chip_of(q_NHD), window=window, family_NW=layout.family, one_each=layout.one_each, **blocks,
        )  # fmt: skip
        for launch in planned:
            launch.run()
        return out_NHD
    N, H, D = q_NHD.shape
    _, C, K, _ = k_PCKD.shape
    if reason := unreadable(q_NHD, k_PCKD, v_PCKD, layout):
        raise KernelError(f"{reason}; paged_attention_reference takes any tensors, and takes() says which the kernel does")
    q_NHD, out_NHD = q_NHD.contiguous(), q_NHD.new_empty((N, H, D))
    native.library().kvedu_attention(
        q_NHD.dtype is torch.float32, q_NHD.data_ptr(), k_PCKD.data_ptr(), v_PCKD.data_ptr(), out_NHD.data_ptr(),
        layout.tables.data_ptr(), layout.rows.data_ptr(),
        None if layout.family is None else layout.family.data_ptr(), 0 if layout.family is None else layout.family.shape[1],
        *layout.tables.shape,
        H, K, D, C, *k_PCKD.stride()[:3], window or 0, 1 / math.sqrt(D), torch.get_num_threads(),
    )  # fmt: skip
    return out_NHD


def unreadable(q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, layout: PagedLayout) -> str | None:
    """Why the CPU's kernel cannot read a step, or None. It follows bare addresses: what it is not told of, it would misread."""
    (_, H, D), K = q_NHD.shape, k_PCKD.shape[2]
    if not native.usable(q_NHD, k_PCKD, v_PCKD):
        if isinstance(found := native.library(), native.Unavailable):
            return f"there are no native kernels here: {found}"
        said = ", ".join(f"{name} {x.dtype} on {x.device}" for name, x in (("q", q_NHD), ("k", k_PCKD), ("v", v_PCKD)))
        return f"the CPU's kernel wants all in bf16 or all in fp32, last axes dense, and no gradient asked for; got {said}"
    if k_PCKD.stride() != v_PCKD.stride() or k_PCKD.shape != v_PCKD.shape or k_PCKD.shape[3] != D or D % 2 or H % K:
        return f"the kernel wants K and V of equal shapes and equal strides, D even, H a multiple of K; got D={D}, H={H}, K={K}"
    wanted = (("tables", layout.tables, torch.int32), ("rows", layout.rows, torch.int64), ("family", layout.family, torch.int64))
    for name, x, dtype in wanted:
        if x is not None and (x.dtype is not dtype or not x.is_cpu or not x.is_contiguous()):
            return f"the CPU's kernel wants {name} as {dtype} in one run of memory on the CPU; got {x.dtype}, strides {x.stride()}, on {x.device}"
    if tuple(layout.rows.shape) != (len(layout.tables), 3) or (layout.family is not None and len(layout.family) != len(q_NHD)):
        came = f"tables {tuple(layout.tables.shape)}, rows {tuple(layout.rows.shape)}, {len(q_NHD)} queries"
        return f"{came}: want [B, J], [B, 3], a tree's bits for each query"
    return None


def paged_write(k_NKD: Tensor, v_NKD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, slots_N: Tensor) -> None:
    """Put new keys and values into their places: slot ``page * C + offset``, int64 ``[N]``.

    Native where it can be (one pass for both), else by index. Pages and new rows may have any strides.
    """
    plain = native.usable(k_NKD, v_NKD, k_PCKD, v_PCKD) and _rows_dense(k_NKD, v_NKD) and _alike(k_NKD, k_PCKD, v_PCKD)
    if plain and slots_N.dtype is torch.int64 and slots_N.is_cpu and slots_N.shape == k_NKD.shape[:1] and slots_N.is_contiguous():
        N, K, D = k_NKD.shape
        native.library().kvedu_write(
            k_NKD.dtype is torch.float32, k_NKD.data_ptr(), v_NKD.data_ptr(), k_NKD.stride(0), v_NKD.stride(0),
            k_PCKD.data_ptr(), v_PCKD.data_ptr(), slots_N.data_ptr(), N, K, D, k_PCKD.shape[1], *k_PCKD.stride()[:3], torch.get_num_threads(),
        )  # fmt: skip
        return
    C = k_PCKD.shape[1]
    for x, new in ((k_PCKD, k_NKD), (v_PCKD, v_NKD)):
        x[slots_N // C, slots_N % C] = new.to(x.dtype)


def _alike(new_NKD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor) -> bool:
    """Whether the pages of keys and values are laid out alike, for rows of this shape."""
    return k_PCKD.shape == v_PCKD.shape and k_PCKD.stride() == v_PCKD.stride() and k_PCKD.shape[2:] == new_NKD.shape[1:]


def _rows_dense(*tensors: Tensor) -> bool:
    """Whether each row ``[K, D]`` is one run of memory and both are of one shape."""
    return tensors[0].shape == tensors[1].shape and all(x.stride(1) == x.shape[2] for x in tensors)
