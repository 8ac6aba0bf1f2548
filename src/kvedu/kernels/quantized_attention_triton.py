"""Attention over quantized pages: codes become numbers in registers, on their way from memory to the product.

The same walk as ``paged_attention_triton``, in two stretches: keys old enough to be seen as codes, then those seen as
they came (a tail of each sequence, and the step's own). With one scale to a head and token, scales never touch the
codes: scores are multiplied by the keys' scales, weights by the values', and zero points come in as
one number a row. Codes themselves are read in one of two ways:

- *by words* (``words_triton``), where codes of both sides fill whole words of 16 bits: few instructions a code;
- *code by code* (``coded_tiles_triton``), any format: values in groups along the tokens, scales in fp32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.coded_step import check_step, coded_bytes, near, side, words_of
from kvedu.kernels.coded_tiles_triton import coded_tile, exact_tile, page_numbers, scales_of
from kvedu.kernels.launch import LOG2E, Chip, KernelError, Launch, power_of_two
from kvedu.kernels.quantized_pages import CodedPages, Exact
from kvedu.kernels.softmax_triton import plan_merge
from kvedu.kernels.splits import RESERVED, blocks_for, buffers_of, padded, splits_in_rounds
from kvedu.kernels.tiles_triton import find_rows, log_sum, online
from kvedu.kernels.words_triton import (
    bias,
    folded_scores,
    folded_sums,
    in_turn,
    query_planes,
    scaled_scores,
    scaled_sums,
    settled,
    time_scores,
    weighed,
    word_scales,
    word_tile,
    zeros_each,
)


@triton.jit
def attend_codes(
    q, kc, ks, kz, vc, vs, vz, k_new, v_new, k_tail, v_tail, out, lse, tables, rows,
    q_n, q_h, kc_u, kc_k, ks_u, ks_k, vc_u, vc_k, vs_u, vs_k, kn_n, kn_k, vn_n, vn_k, t_s, t_w, t_k,
    out_n, out_h, out_s, lse_n, lse_h, table_b, B, scale, width, residual,
    G: tl.constexpr, D: tl.constexpr, C: tl.constexpr, W: tl.constexpr, UNIT: tl.constexpr,
    K_KIND: tl.constexpr, K_BITS: tl.constexpr, K_SIGNED: tl.constexpr, K_GROUP: tl.constexpr, K_STEP: tl.constexpr, K_ZERO: tl.constexpr,
    K_WORDS: tl.constexpr, V_WORDS: tl.constexpr, K_UNIT: tl.constexpr, V_UNIT: tl.constexpr, NEAR: tl.constexpr, TAIL: tl.constexpr,
    V_KIND: tl.constexpr, V_BITS: tl.constexpr, V_SIGNED: tl.constexpr, V_GROUP: tl.constexpr, V_STEP: tl.constexpr, V_ZERO: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr, DP: tl.constexpr, ONE_EACH: tl.constexpr, WINDOW: tl.constexpr,
    SPLIT: tl.constexpr, NATIVE: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """A block of query rows over one split of the codes; the last split also takes what is seen as it came.

    A row with i tokens before it sees the first ``(i - residual) // UNIT * UNIT`` as codes. HALF: products in fp16,
    else in the queries' own precision. NEAR: 32 bits hold every place. TAIL: keys of a tile of what is seen as it came.
    """
    TOKENS: tl.constexpr = BLOCK_M // G
    K_SCALE: tl.constexpr = K_GROUP == D and K_STEP == 1  # one scale a token: it meets the score, not the codes
    V_SCALE: tl.constexpr = V_GROUP == D and V_STEP == 1
    K_BARE: tl.constexpr = K_SCALE or K_GROUP == 0
    V_BARE: tl.constexpr = V_SCALE or V_GROUP == 0
    index: tl.constexpr = tl.int32 if NEAR else tl.int64
    KP: tl.constexpr = 16 // K_BITS  # codes in a word: planes
    VP: tl.constexpr = 16 // V_BITS if V_WORDS > 0 else 1  # planes of values, each with its own sum
    head = tl.program_id(0).to(tl.int64)
    block = tl.num_programs(1) - 1 - tl.program_id(1)
    split = tl.program_id(2)
    b, first, new, old, t0 = find_rows(rows, block, B, TOKENS, ONE_EACH, 4)
    if t0 >= new:
        return
    slot = tl.load(rows + 4 * b + 3)
    row = tl.arange(0, BLOCK_M)
    t = t0 + row // G
    valid = (row < TOKENS * G) & (t < new)
    at_row = first + tl.where(valid, t, 0)
    at_head = head * G + row % G
    d = tl.arange(0, DP)
    q_tile = tl.load(q + (at_row * q_n + at_head * q_h)[:, None] + d[None, :], mask=valid[:, None] & (d < D)[None, :], other=0.0)
    own: tl.constexpr = q.dtype.element_ty
    dtype: tl.constexpr = tl.float16 if HALF else own
    q_code = q_tile.to(dtype)
    q_sum = tl.sum(q_tile.to(tl.float32), 1)

    last = tl.where(valid, old + t, -1)
    border = tl.maximum(last - residual, 0) // UNIT * UNIT  # keys before it are seen as codes
    end = old + tl.minimum(t0 + TOKENS, new)
    coded_end = tl.maximum(end - 1 - residual, 0) // UNIT * UNIT
    exact_start = tl.maximum(old + t0 - residual, 0) // UNIT * UNIT
    lo = t0 * 0
    if WINDOW:
        lo = tl.maximum(old + t0 + 1 - width, 0) // BLOCK_S * BLOCK_S
        exact_start = tl.maximum(exact_start, old + t0 + 1 - width)
    hi = coded_end
    if SPLIT:
        share = tl.cdiv(tl.cdiv(tl.maximum(coded_end - lo, 0), tl.num_programs(2)), BLOCK_S) * BLOCK_S
        lo += split * share
        hi = tl.minimum(coded_end, lo + share)

    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    accs = zeros_each(VP, BLOCK_M, DP // VP)  # in units of ``most``, the largest scale of the last tile's values
    most = 1.0
    taken = tl.zeros([BLOCK_M, BLOCK_S], tl.float32)  # weights times scales, and times zero points: summed up after the loop
    zeros = tl.zeros([BLOCK_M, BLOCK_S], tl.float32)
    if K_WORDS > 0 and K_STEP == 1:
        q_planes = query_planes(q, at_row * q_n + at_head * q_h, valid, dtype, KP, K_WORDS, DP // KP)
        if K_BARE:
            q_planes, too_much = weighed(q_planes, KP, dtype, K_KIND, K_BITS, K_SIGNED, HALF)
    table = tables + b.to(tl.int64) * table_b
    kc += head * kc_k
    ks += head * ks_k
    kz += head * ks_k
    vc += head * vc_k
    vs += head * vs_k
    vz += head * vs_k
    first_S = lo + tl.arange(0, BLOCK_S)
    ahead = page_numbers(table, first_S, hi, C, index)
    scales = scales_of(ks, kz, vs, vz, ahead, first_S, hi, ks_u, vs_u, C, K_SCALE, K_ZERO, V_SCALE, V_ZERO)
    ahead = page_numbers(table, first_S + BLOCK_S, hi, C, index)
    for start in tl.range(lo, hi, BLOCK_S):
        keys = start + tl.arange(0, BLOCK_S)
        inside = keys < hi
        k_scale, k_zero, v_scale, v_zero = scales
        scales = scales_of(ks, kz, vs, vz, ahead, keys + BLOCK_S, hi, ks_u, vs_u, C, K_SCALE, K_ZERO, V_SCALE, V_ZERO)
        ahead = page_numbers(table, keys + 2 * BLOCK_S, hi, C, index)
        page = page_numbers(table, keys, hi, C, index)
        at_S = page * C + keys % C
        if K_WORDS > 0 and K_STEP > 1:
            s = time_scores(q_code, kc, ks, kz, table, start, hi, kc_u, ks_u, dtype, C, index, K_UNIT, K_KIND, K_BITS, K_SIGNED, K_STEP,
                            K_ZERO, BLOCK_S, D, DP, PRECISION, PTX)  # fmt: skip
        elif K_WORDS > 0:
            words = word_tile(kc, at_S * kc_u, inside, K_UNIT, K_WORDS, DP // KP)
            if K_BARE:
                s = folded_scores(q_planes, too_much, words, KP, BLOCK_M, BLOCK_S, dtype, K_KIND, K_BITS, K_SIGNED, PRECISION, PTX)
            else:
                scale_SW, zero_SW = word_scales(ks, kz, at_S * ks_u, inside, dtype, K_ZERO, K_GROUP // KP, K_WORDS, DP // KP)
                s = scaled_scores(q_planes, words, scale_SW, zero_SW, KP, BLOCK_M, BLOCK_S, dtype, K_KIND, K_BITS, K_SIGNED, PRECISION, PTX)
        else:
            k_tile = coded_tile(kc, ks, kz, page * (C // K_STEP) + keys % C // K_STEP, keys, inside, kc_u, ks_u, dtype,
                                K_UNIT, K_KIND, K_BITS, K_SIGNED, K_GROUP, K_STEP, K_ZERO, D, DP, NATIVE)  # fmt: skip
            s = tl.dot(q_code, tl.trans(k_tile), input_precision=PRECISION)
        if K_SCALE:
            s = s * k_scale[None, :]
            if K_ZERO:
                s += q_sum[:, None] * k_zero[None, :]
        visible = keys[None, :] < border[:, None]
        if WINDOW:
            visible = visible & (keys[None, :] > last[:, None] - width)
        p, shrink, m, l = online(tl.where(visible, s, float("-inf")), scale, m, l)
        if V_SCALE:
            largest = tl.max(v_scale, 0)  # weights times scales stay near 1: small ones would not survive fp16
            largest = tl.where(largest == 0.0, 1.0, largest)
            shrink_to = shrink * (most / largest)
            most = largest
            weights = (p * (v_scale * (1.0 / largest))[None, :]).to(dtype)
            if V_ZERO:
                zeros = zeros * shrink[:, None] + p * v_zero[None, :]
        else:
            shrink_to = shrink
            weights = p.to(dtype)
        if V_WORDS > 0:
            words = word_tile(vc, at_S * vc_u, inside, V_UNIT, V_WORDS, DP // VP)
            if V_BARE:
                if bias(0, V_KIND, V_BITS, V_SIGNED, HALF) != 0:
                    taken = taken * shrink_to[:, None] + weights.to(tl.float32)
                accs = folded_sums(accs, shrink_to, weights, words, VP, dtype, V_KIND, V_BITS, V_SIGNED, PRECISION, PTX)
            else:
                scale_SW, zero_SW = word_scales(vs, vz, at_S * vs_u, inside, dtype, V_ZERO, V_GROUP // VP, V_WORDS, DP // VP)
                accs = scaled_sums(accs, shrink, weights, words, scale_SW, zero_SW, VP, dtype, V_KIND, V_BITS, V_SIGNED, PRECISION, PTX)
        else:
            v_tile = coded_tile(vc, vs, vz, page * (C // V_STEP) + keys % C // V_STEP, keys, inside, vc_u, vs_u, dtype,
                                V_UNIT, V_KIND, V_BITS, V_SIGNED, V_GROUP, V_STEP, V_ZERO, D, DP, NATIVE)  # fmt: skip
            accs = (tl.dot(weights, v_tile, accs[0] * shrink_to[:, None], input_precision=PRECISION),)

    if V_WORDS > 0 and V_BARE:
        accs = settled(accs, tl.sum(taken, 1), most, tl.sum(zeros, 1), VP, V_KIND, V_BITS, V_SIGNED, HALF)
    elif V_WORDS == 0:
        accs = (accs[0] * most + tl.sum(zeros, 1)[:, None],)
    acc = in_turn(accs, VP)
    if split == tl.num_programs(2) - 1:
        for start in tl.range(exact_start, end, TAIL, num_stages=1):  # short: not worth shared memory of its own
            keys = start + tl.arange(0, TAIL)
            inside = keys < end
            k_tile = exact_tile(k_new, k_tail, keys, inside, old, first, slot, head, kn_n, kn_k, t_s, t_w, t_k, W, D, DP)
            s = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
            visible = (keys[None, :] >= border[:, None]) & (keys[None, :] <= last[:, None])
            if WINDOW:
                visible = visible & (keys[None, :] > last[:, None] - width)
            p, shrink, m, l = online(tl.where(visible, s, float("-inf")), scale, m, l)
            v_tile = exact_tile(v_new, v_tail, keys, inside, old, first, slot, head, vn_n, vn_k, t_s, t_w, t_k, W, D, DP)
            acc = tl.dot(p.to(own), v_tile, acc * shrink[:, None], input_precision=PRECISION)

    acc = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    to = out + (at_row * out_n + at_head * out_h + split * out_s)[:, None] + d[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=valid[:, None] & (d < D)[None, :])
    if SPLIT:
        tl.store(lse + at_row * lse_n + at_head * lse_h + split, log_sum(m * scale, l), mask=valid)


def plan_quantized_attention(
    q_NHD: Tensor, keys: CodedPages, values: CodedPages, k: Exact, v: Exact, tables_BJ: Tensor, rows_B4: Tensor, out_NHD: Tensor,
    *, chip: Chip, residual: int = 0, unit: int = 1, window: int | None = None, block_m: int | None = None,
    block_s: int | None = None, splits: int | None = None, warps: int | None = None, stages: int | None = None, by_words: bool = True, one_each: bool = False,
) -> list[Launch]:  # fmt: skip
    """The launches of one call: the kernel, and the merge where the keys are split. ``by_words`` False: every format code by code.
    ``one_each`` as in ``PagedLayout``."""
    check_step(q_NHD, keys, values, k, v, tables_BJ, rows_B4)
    (N, H, D), K, (B, J), C = q_NHD.shape, k.fresh.shape[1], tables_BJ.shape, keys.page_size
    if not N or not B:
        return []
    if H % K or k.tails.stride() != v.tails.stride() or not q_NHD.dtype == k.fresh.dtype == v.fresh.dtype == k.tails.dtype:
        raise KernelError(f"H={H} must be a multiple of K={K}, both tails laid out alike, and all exact numbers of one dtype")
    G, exact = H // K, q_NHD.dtype == torch.float32
    rule = blocks_for(chip, G * N / B, G, D, q_NHD.element_size())
    block_m = max(min(block_m or rule["block_m"], 64 if D <= 128 else 32), power_of_two(G))
    words = words_of(keys, values, chip) if by_words else (0, 0)
    wide = words[0] and block_m <= 16  # 8 bits: twice the keys in the bytes of 16-bit numbers
    narrow = block_m > 16 if words[0] else min(keys.format.bits, values.format.bits) < 8  # unpacking takes registers
    grouped = any(p.format.step > 1 or p.format.group not in (None, D) for p in (keys, values))  # scales of words too
    widest = 64 if grouped and D <= 64 else 128
    block_s = block_s or (min(widest, 2 * rule["block_s"]) if wide else min(rule["block_s"], 32 if narrow else widest if words[0] else 64))
    blocks = B if one_each else N // (block_m // G) + B
    stages = stages or rule["stages"]
    if splits is None:
        held = coded_bytes(keys, values, block_m, block_s, buffers_of(chip, stages, block_m), q_NHD.element_size())
        resident = max(1, min(2, (chip.shared + RESERVED) // (held + RESERVED)))  # registers hold no third
        splits = splits_in_rounds(chip, K * blocks, J * C, block_s, resident)
    target, lse = out_NHD, out_NHD
    if splits > 1:
        target = q_NHD.new_empty((N, H, splits, D), dtype=torch.float32)
        lse = q_NHD.new_empty((N, H, splits), dtype=torch.float32)
    sides = [side(keys, "k", words[0]), side(values, "v", words[1])]
    tails = k.tails if k.tails.numel() else k.fresh.new_empty((1, 1, K, D))
    args = dict(
        q=q_NHD, **sides[0][0], **sides[1][0], k_new=k.fresh, v_new=v.fresh,
        k_tail=k.tails if k.tails.numel() else tails, v_tail=v.tails if v.tails.numel() else tails,
        out=target, lse=lse, tables=tables_BJ, rows=rows_B4, q_n=q_NHD.stride(0), q_h=q_NHD.stride(1), **sides[0][1], **sides[1][1],
        kn_n=k.fresh.stride(0), kn_k=k.fresh.stride(1), vn_n=v.fresh.stride(0), vn_k=v.fresh.stride(1),
        t_s=tails.stride(0), t_w=tails.stride(1), t_k=tails.stride(2),
        out_n=target.stride(0), out_h=target.stride(1), out_s=target.stride(2) if splits > 1 else 0,
        lse_n=lse.stride(0), lse_h=lse.stride(1), table_b=tables_BJ.stride(0), B=B, scale=D**-0.5 * LOG2E,
        width=window or 0, residual=residual,
    )  # fmt: skip
    constants = dict(
        G=G, D=D, C=C, W=k.tails.shape[1], UNIT=unit, **sides[0][2], **sides[1][2], BLOCK_M=block_m, BLOCK_S=block_s, DP=padded(D),
        NEAR=near(keys, values), TAIL=16 if block_m <= 16 else min(block_s, 64),
        ONE_EACH=one_each, WINDOW=bool(window), SPLIT=splits > 1, NATIVE=chip.float8,
        HALF=not exact and (words[0] > 0 or all(p.format.group in (None, D) and p.format.step == 1 for p in (keys, values))),
        PRECISION="ieee", PTX=chip.capability > 0,
    )  # fmt: skip
    launches = [Launch(attend_codes, (K, blocks, splits), args, constants, warps or (4 if D <= 128 else 8), stages)]
    return launches if splits == 1 else [*launches, plan_merge(target, lse, out_NHD)]
