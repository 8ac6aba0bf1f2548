"""One attention kernel for a whole step: prompts, chunks after a cached prefix, single tokens and token trees, paged or not.

A program owns a block of query rows of one KV head and walks over that head's keys, a tile at a time, with a
running softmax (Milakov and Gimelshein 2018; Dao et al. 2022). Its rows are the G query heads of a group times
some tokens, so K and V cross the memory bus once per KV head and block, whatever G is. A step of single tokens
has few blocks; then the keys are cut into splits too, each program leaves a partial result with the logarithm of its
sum, and ``softmax_triton.merge`` puts them together (flash-decoding, Dao et al. 2023).

    program (kv head, block of queries, split)      tiles: q [BLOCK_M, D], k and v [BLOCK_S, D], scores [BLOCK_M, BLOCK_S]
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.launch import LOG2E, Chip, KernelError, Launch, check_layout, check_rows, power_of_two
from kvedu.kernels.softmax_triton import plan_merge
from kvedu.kernels.splits import blocks_for, needed, padded, splits_for
from kvedu.kernels.tiles_triton import find_rows, log_sum, online


@triton.jit
def places(table, page, keys, inside, x_p, x_c, C: tl.constexpr, BLOCK_S: tl.constexpr, MASKED: tl.constexpr):
    """Where the rows of these keys begin, ``[BLOCK_S]``, counted as ``x_p`` (from page to page) and ``x_c`` (from slot to slot) are.

    C = 0: the sequence lies in the one page given. Where a tile lies within one page its number is read once, else for each key;
    nothing is read of the table for keys that are not ``inside``.
    """
    if C == 0:
        return page * x_p + keys.to(page.dtype) * x_c
    elif C % BLOCK_S == 0:
        return tl.load(table + tl.min(keys, 0) // C).to(page.dtype) * x_p + (keys % C).to(page.dtype) * x_c
    elif MASKED:
        return tl.load(table + keys // C, mask=inside, other=0).to(page.dtype) * x_p + (keys % C).to(page.dtype) * x_c
    else:
        return tl.load(table + keys // C).to(page.dtype) * x_p + (keys % C).to(page.dtype) * x_c


@triton.jit
def load_tile(x, at_S, inside, UNIT: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, MASKED: tl.constexpr):
    """The rows of one head that begin UNIT * ``at_S`` elements after x, ``[BLOCK_S, PADDED]``; what is outside is not touched."""
    d = tl.arange(0, PADDED)
    where = x + (at_S.to(tl.int64) * UNIT)[:, None] + d[None, :]
    if MASKED:
        return tl.load(where, mask=inside[:, None] & (d < WIDTH)[None, :], other=0.0)
    elif WIDTH != PADDED:
        return tl.load(where, mask=(d < WIDTH)[None, :], other=0.0)
    else:
        return tl.load(where)


@triton.jit
def sweep(acc, m, l, q_tile, k, v, table, page, lo, hi, last_M, position_M, family_M, old,
          scale, width, k_p, k_c, v_p, v_c,
          C: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BLOCK_S: tl.constexpr,
          DP: tl.constexpr, DVP: tl.constexpr, MASKED: tl.constexpr, WINDOW: tl.constexpr,
          WORDS: tl.constexpr, UNIT: tl.constexpr, ALIKE: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Take the keys lo .. hi - 1 into (acc, m, l). MASKED: some row must not see some of these keys."""
    for start in tl.range(lo, hi, BLOCK_S):
        keys = start + tl.arange(0, BLOCK_S)
        inside = keys < hi
        at_S = places(table, page, keys, inside, k_p, k_c, C, BLOCK_S, MASKED)
        k_tile = load_tile(k, at_S, inside, UNIT, D, DP, MASKED)
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        if MASKED:
            visible = keys[None, :] <= last_M[:, None]
            if WORDS:  # a tree's window was applied to its bits, and to its committed keys by depth
                asked = ((keys >= old) & inside)[None, :] & (position_M >= 0)[:, None]
                place = tl.where(keys >= old, keys - old, 0)
                words = tl.load(family_M[:, None] + (place // 64)[None, :], mask=asked, other=0)
                visible = visible & (((words >> (place % 64).to(tl.int64)[None, :]) & 1 != 0) | ~asked)
                if WINDOW:
                    at_M = tl.where(position_M >= 0, position_M, last_M)
                    visible = visible & ((keys[None, :] > at_M[:, None] - width) | asked)
            elif WINDOW:
                visible = visible & (keys[None, :] > last_M[:, None] - width)
            s = tl.where(visible, s, float("-inf"))
        p, shrink, m, l = online(s, scale, m, l)
        if not ALIKE:  # else a key's K and V lie at one place, each in its own tensor
            at_S = places(table, page, keys, inside, v_p, v_c, C, BLOCK_S, MASKED)
        v_tile = load_tile(v, at_S, inside, UNIT, DV, DVP, MASKED)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * shrink[:, None], input_precision=PRECISION)
    return acc, m, l


@triton.jit
def ones(x):
    """Bits set in each int64, by halves: no instruction of one maker's chips is asked for."""
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    x = x + (x >> 32)
    x = x + (x >> 16)
    return ((x + (x >> 8)) & 0x7F).to(tl.int32)


@triton.jit
def attend(q, k, v, out, lse, tables, rows, family, q_n, q_h, k_p, k_c, k_k, v_p, v_c, v_k, out_n, out_h, out_s, lse_n, lse_h,
           table_b, family_n, B, scale, width, chunk,
           G: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr,
           DP: tl.constexpr, DVP: tl.constexpr, ONE_EACH: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
           WORDS: tl.constexpr, SPLIT: tl.constexpr, PARTIAL: tl.constexpr, EDGES: tl.constexpr, UNIT: tl.constexpr, ALIKE: tl.constexpr,
           PRECISION: tl.constexpr):  # fmt: skip
    """Attention of a block of query rows over one split of its keys.

    CAUSAL: the new tokens are keys too, and a token sees those up to itself; else all see the ``old`` keys and
    nothing more. WORDS > 0: token trees, as bits (``kernels/family``). SPLIT 0: no splits; 1: as many as the grid has, of what this block sees; 2: cut at multiples of
    ``chunk`` from the sequence's first key, whatever the step. PARTIAL: store fp32 and the log-sum. EDGES: tiles that
    every row sees whole are done in a loop of their own, without masks. UNIT: how many elements the pages' strides count by, 8 where
    32 bits then hold every place of a layer, else 1 and 64 bits. ALIKE: K and V have the same strides.
    """
    TOKENS: tl.constexpr = BLOCK_M // G
    head = tl.program_id(0)
    block = tl.num_programs(1) - 1 - tl.program_id(1)  # the last queries see most: first come, first done
    split = tl.program_id(2)
    b, first, new, old, t0 = find_rows(rows, block, B, TOKENS, ONE_EACH, 3)
    if t0 >= new:
        return
    row = tl.arange(0, BLOCK_M)
    t = t0 + row // G
    valid = (row < TOKENS * G) & (t < new)
    at_row = first + tl.where(valid, t, 0)  # int64
    at_head = head * G + row % G
    d = tl.arange(0, DP)
    q_tile = tl.load(q + (at_row * q_n + at_head.to(tl.int64) * q_h)[:, None] + d[None, :], mask=valid[:, None] & (d < D)[None, :], other=0.0)

    if CAUSAL:  # the last key that each row sees, and one past the last that any row sees
        last = old + t
        end = old + tl.minimum(t0 + TOKENS, new)
    else:
        last = old - 1 + t * 0
        end = old
    last = tl.where(valid, last, -1)
    lo = t0 * 0
    if WINDOW:
        lo = tl.maximum(old + (0 if WORDS else t0) + 1 - width, 0) // BLOCK_S * BLOCK_S
    hi = end
    if SPLIT == 1:
        share = tl.cdiv(tl.cdiv(end - lo, tl.num_programs(2)), BLOCK_S) * BLOCK_S
        lo += split * share
        hi = tl.minimum(end, lo + share)
    if SPLIT == 2:
        hi = tl.minimum(end, (split + 1) * chunk)
        lo = tl.maximum(lo, split * chunk)

    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DVP], tl.float32)
    k += head.to(tl.int64) * k_k
    v += head.to(tl.int64) * v_k
    table = tables + b.to(tl.int64) * table_b
    page = tl.load(table, mask=C == 0, other=0).to(tl.int64 if UNIT == 1 else tl.int32)
    family_M = family + at_row * family_n
    position = last * 0 - 1
    if WORDS:  # a tree's tokens stand as deep as they have ancestors; rows without a bit belong to no tree
        depth = ones(tl.load(family_M, mask=valid, other=0))
        for w in tl.static_range(1, WORDS):
            depth += ones(tl.load(family_M + w, mask=valid, other=0))
        position = tl.where(depth > 0, old + depth - 1, -1)
    if EDGES:
        inner = tl.minimum(hi, old + t0 + 1 if CAUSAL else old)  # every row sees the keys before this one
        if WORDS:
            inner = tl.minimum(hi, old)
        if WINDOW:  # and after this one
            left = tl.minimum(hi, tl.cdiv(tl.maximum(end - width, 0), BLOCK_S) * BLOCK_S)
            acc, m, l = sweep(acc, m, l, q_tile, k, v, table, page, lo, left, last, position, family_M, old, scale, width, k_p, k_c, v_p, v_c,
                              C, D, DV, BLOCK_S, DP, DVP, True, WINDOW, WORDS, UNIT, ALIKE, PRECISION)  # fmt: skip
            lo = tl.maximum(lo, left)
        whole = lo + tl.maximum(inner - lo, 0) // BLOCK_S * BLOCK_S
        acc, m, l = sweep(acc, m, l, q_tile, k, v, table, page, lo, whole, last, position, family_M, old, scale, width, k_p, k_c, v_p, v_c,
                          C, D, DV, BLOCK_S, DP, DVP, False, WINDOW, WORDS, UNIT, ALIKE, PRECISION)  # fmt: skip
        lo = whole
    acc, m, l = sweep(acc, m, l, q_tile, k, v, table, page, lo, hi, last, position, family_M, old, scale, width, k_p, k_c, v_p, v_c,
                      C, D, DV, BLOCK_S, DP, DVP, True, WINDOW, WORDS, UNIT, ALIKE, PRECISION)  # fmt: skip

    acc = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    dv = tl.arange(0, DVP)
    to = out + (at_row * out_n + at_head * out_h + split * out_s)[:, None] + dv[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=valid[:, None] & (dv < DV)[None, :])
    if PARTIAL:
        tl.store(lse + at_row * lse_n + at_head * lse_h + split, log_sum(m * scale, l), mask=valid)


def plan_attention(
    q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, tables_BJ: Tensor, rows_B3: Tensor, out_NHD: Tensor, *, chip: Chip,
    scale: float | None = None, window: int | None = None, family_NW: Tensor | None = None, causal: bool = True,
    block_m: int | None = None, block_s: int | None = None, splits: int | None = None, split_tokens: int | None = None,
    warps: int | None = None, stages: int | None = None, edges: bool | None = None,
    one_each: bool = False, parts: tuple[Tensor, Tensor] | None = None,
) -> list[Launch]:  # fmt: skip
    """The launches of one attention call (one, or two where the keys are split); shapes and strides decide, never values.

    ``split_tokens`` cuts the keys at fixed places instead of into ``splits`` (batch-invariant mode). ``parts`` =
    (fp32 ``[N, H, splits, Dv]``, log-sums ``[N, H, splits]``) takes the partial results of a caller that merges
    them itself. ``one_each`` as in ``PagedLayout``.
    """
    (N, H, D), (_, C, K, DV), (B, J) = q_NHD.shape, v_PCKD.shape, tables_BJ.shape
    G = H // K
    check_pages(q_NHD, k_PCKD, v_PCKD)
    check_layout(q_NHD, tables_BJ, rows_B3, 3)
    check_rows(q=q_NHD, k=k_PCKD, v=v_PCKD, out=out_NHD, tables=tables_BJ, **({} if family_NW is None else {"family": family_NW}))
    if (splits is not None and splits < 1) or (N and not B) or (family_NW is not None and len(family_NW) != N):
        raise KernelError(f"{N} rows of {B} sequences, splits={splits}: want a split or more, a sequence or more, a tree's bits for each row")
    if scale is not None and not scale > 0:
        raise KernelError(f"scale={scale} must be above 0: weights are taken relative to a row's largest score")
    if chip.capability and not fits(chip, max(D, DV), q_NHD.dtype, G):
        raise KernelError(f"heads of {max(D, DV)} in {q_NHD.dtype} are not for this kernel on this chip ({chip}); leave triton out for the PyTorch path")
    if not N:
        return []
    rule = blocks_for(chip, G * N / B, G, max(D, DV), q_NHD.element_size(), tables=J > 1 or bool(split_tokens))
    most = 128 if family_NW is None else 32 if not chip.wgmma or D > 128 or chip.capability >= 100 else 64  # a tree's bits take registers
    block_m = max(block_m or min(rule["block_m"], most), power_of_two(G))
    block_s, warps, stages = block_s or rule["block_s"], warps or rule["warps"], stages or rule["stages"]
    if one_each and N != B:
        raise KernelError(f"the layout promises one new token of each of {B} sequences, and there are {N} rows; make it with PagedLayout.of")
    blocks = B if one_each else N // (block_m // G) + B
    if split_tokens:
        splits = -(-J * C // split_tokens)
        if split_tokens % block_s:
            raise KernelError(f"split_tokens={split_tokens} must be a multiple of the key block, {block_s}")
    elif splits is None:
        splits = splits_for(chip, K * blocks, J * C, block_s) if block_m <= 64 else 1
    if parts is None and (splits > 1 or split_tokens):
        own = q_NHD.new_empty((N, H, splits, DV), dtype=torch.float32), q_NHD.new_empty((N, H, splits), dtype=torch.float32)
    else:
        own = parts
    target, lse = (out_NHD, None) if own is None else own
    if lse is not None and ((target.shape, lse.shape) != ((N, H, splits, DV), (N, H, splits)) or target.stride(3) != 1 or lse.stride(2) != 1):
        came, want = f"{tuple(target.shape)} and {tuple(lse.shape)}", f"{(N, H, splits, DV)} and {(N, H, splits)}"
        raise KernelError(f"parts {came} do not fit: want {want}, last axes dense")
    unit = unit_of(k_PCKD, v_PCKD)
    constants: dict[str, Any] = dict(
        G=G, D=D, DV=DV, C=0 if J == 1 and not split_tokens else C, BLOCK_M=block_m, BLOCK_S=block_s, DP=padded(D), DVP=padded(DV),
        ONE_EACH=one_each, CAUSAL=causal, WINDOW=bool(window), WORDS=0 if family_NW is None else family_NW.shape[1],
        SPLIT=2 if split_tokens else int(splits > 1), PARTIAL=own is not None,
        EDGES=block_m > 32 if edges is None else edges, UNIT=unit, ALIKE=k_PCKD.stride()[:2] == v_PCKD.stride()[:2],
        PRECISION="ieee",  # of fp32; 16 bits know no other
    )  # fmt: skip
    args = dict(
        q=q_NHD, k=k_PCKD, v=v_PCKD, out=target, lse=target if lse is None else lse, tables=tables_BJ, rows=rows_B3,
        family=tables_BJ if family_NW is None else family_NW,
        q_n=q_NHD.stride(0), q_h=q_NHD.stride(1),
        k_p=k_PCKD.stride(0) // unit, k_c=k_PCKD.stride(1) // unit, k_k=k_PCKD.stride(2),
        v_p=v_PCKD.stride(0) // unit, v_c=v_PCKD.stride(1) // unit, v_k=v_PCKD.stride(2),
        out_n=target.stride(0), out_h=target.stride(1), out_s=0 if own is None else target.stride(2),
        lse_n=0 if lse is None else lse.stride(0), lse_h=0 if lse is None else lse.stride(1),
        table_b=tables_BJ.stride(0), family_n=0 if family_NW is None else family_NW.stride(0),
        B=B, scale=(D**-0.5 if scale is None else scale) * LOG2E, width=window or 0, chunk=split_tokens or 0,
    )  # fmt: skip
    launches = [Launch(attend, (K, blocks, splits), args, constants, warps, stages)]
    if parts is None and own is not None:
        launches.append(plan_merge(*own, out_NHD, fixed=bool(split_tokens)))
    return launches


def unit_of(*pages: Tensor) -> int:
    """Elements that the strides of pages ``[P, C, ...]`` are counted by: 8 where all are multiples of it and the last place of a layer is
    then below 2**31 (a layer's K of 32 GiB in bf16), else 1.

    >>> unit_of(torch.empty(9, 16, 8, 128, device="meta")), unit_of(torch.empty(9, 16, 2, 20, device="meta"))
    (8, 8)
    >>> unit_of(torch.empty(9, 16, 1, 20, device="meta")), unit_of(torch.empty(2**27, 16, 1, 128, device="meta"))
    (1, 1)
    """
    for x in pages:
        (P, C), (x_p, x_c) = x.shape[:2], x.stride()[:2]
        if x_p % 8 or x_c % 8 or (P * x_p + C * x_c) // 8 >= 2**31:
            return 1
    return 8


@functools.cache
def fits(chip: Chip, D: int, dtype: torch.dtype, G: int = 1) -> bool:
    """Whether the smallest blocks for heads of D fit this chip, and it computes in this dtype."""
    if D > 256 or dtype not in (torch.float16, torch.bfloat16, torch.float32) or (dtype == torch.bfloat16 and not chip.bf16):
        return False
    rule = blocks_for(chip, 1, G, D, dtype.itemsize)
    return needed(D, dtype.itemsize, rule["block_m"], rule["block_s"], 1) <= chip.shared


def check_pages(q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor) -> None:
    """Raise ``KernelError`` for shapes and layouts that the kernel does not read."""
    (N, H, D), (P, C, K, DK), v_shape = q_NHD.shape, k_PCKD.shape, v_PCKD.shape
    if DK != D or tuple(v_shape[:3]) != (P, C, K) or H % K:
        raise KernelError(f"q {tuple(q_NHD.shape)}, k {tuple(k_PCKD.shape)} and v {tuple(v_shape)} do not fit: want [N, H, D], [P, C, K, D], [P, C, K, Dv]")
    if not q_NHD.dtype == k_PCKD.dtype == v_PCKD.dtype:
        raise KernelError(f"q is {q_NHD.dtype}, k {k_PCKD.dtype}, v {v_PCKD.dtype}; convert the queries to the pages' dtype")
