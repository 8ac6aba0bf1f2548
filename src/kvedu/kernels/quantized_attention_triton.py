"""Attention over quantized pages: codes become numbers in registers, on their way from memory to the product.

The same walk as ``paged_attention_triton``, in two stretches: keys old enough to be seen as codes, then those seen as
they came (a tail of each sequence, and the step's own). With one scale to a head and token, scales never touch the
codes: scores are multiplied by the keys' scales, weights by the values', and zero points come in as
one number a row. Codes themselves are read in one of two ways:

- *by words* (``words_triton``), where both sides are integers and fill whole words of 16 bits: few instructions a code;
- *code by code* (``coded_tiles_triton``), any format: 8-bit floats, values in groups along the tokens, scales in fp32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.coded_tiles_triton import coded_tile, exact_tile, token_scales
from kvedu.kernels.launch import LOG2E, Chip, KernelError, Launch, check_rows, check_whole, power_of_two
from kvedu.kernels.quantized_pages import KINDS, CodedPages, Exact
from kvedu.kernels.softmax_triton import plan_merge
from kvedu.kernels.splits import blocks_for, padded, splits_for
from kvedu.kernels.tiles_triton import find_rows, log_sum, online
from kvedu.kernels.words_triton import (
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
    K_WORDS: tl.constexpr, V_WORDS: tl.constexpr,
    V_KIND: tl.constexpr, V_BITS: tl.constexpr, V_SIGNED: tl.constexpr, V_GROUP: tl.constexpr, V_STEP: tl.constexpr, V_ZERO: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr, DP: tl.constexpr, ONE_EACH: tl.constexpr, WINDOW: tl.constexpr,
    SPLIT: tl.constexpr, NATIVE: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """A block of query rows over one split of the codes; the last split also takes what is seen as it came.

    A row with i tokens before it sees the first ``(i - residual) // UNIT * UNIT`` as codes. HALF: products in fp16,
    else in the queries' own precision.
    """
    TOKENS: tl.constexpr = BLOCK_M // G
    K_FOLD: tl.constexpr = K_GROUP == D and K_STEP == 1  # one scale a token: it meets the score, not the codes
    V_FOLD: tl.constexpr = V_GROUP == D and V_STEP == 1
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
    accs = zeros_each(VP, BLOCK_M, DP // VP)
    taken = tl.zeros([BLOCK_M, BLOCK_S], tl.float32)  # weights times scales, and times zero points: summed up after the loop
    zeros = tl.zeros([BLOCK_M, BLOCK_S], tl.float32)
    if K_WORDS > 0 and K_STEP == 1:
        q_planes = query_planes(q, at_row * q_n + at_head * q_h, valid, dtype, KP, K_WORDS, DP // KP)
        if K_FOLD:
            q_planes, too_much = weighed(q_planes, KP, dtype, K_BITS, K_SIGNED, HALF)
    table = tables + b.to(tl.int64) * table_b
    for start in tl.range(lo, hi, BLOCK_S):
        keys = start + tl.arange(0, BLOCK_S)
        inside = keys < hi
        page = tl.load(table + keys // C, mask=inside, other=0).to(tl.int64)
        if K_WORDS > 0 and K_STEP > 1:
            s = time_scores(q_code, kc, ks, kz, table, start, hi, head, kc_u, kc_k, ks_u, ks_k, dtype, C, K_BITS, K_SIGNED, K_STEP,
                            K_ZERO, BLOCK_S, D, DP, PRECISION, PTX)  # fmt: skip
        elif K_WORDS > 0:
            at_S = page * C + keys % C
            words = word_tile(kc, at_S * kc_u + head * kc_k, inside, K_WORDS, DP // KP)
            at_S = at_S * ks_u + head * ks_k
            if K_FOLD:
                k_scale, k_zero = token_scales(ks, kz, at_S, inside, K_ZERO)
                s = folded_scores(q_planes, too_much, words, KP, BLOCK_M, BLOCK_S, dtype, K_BITS, K_SIGNED, PRECISION, PTX) * k_scale[None, :]
            else:
                k_scale, k_zero = word_scales(ks, kz, at_S, inside, dtype, K_ZERO, K_GROUP // KP, K_WORDS, DP // KP)
                s = scaled_scores(q_planes, words, k_scale, k_zero, KP, BLOCK_M, BLOCK_S, dtype, K_BITS, K_SIGNED, PRECISION, PTX)
        else:
            k_tile, k_scale, k_zero = coded_tile(kc, ks, kz, page * (C // K_STEP) + (keys % C) // K_STEP, head, keys, inside, kc_u, kc_k,
                                                 ks_u, ks_k, dtype, K_KIND, K_BITS, K_SIGNED, K_GROUP, K_STEP, K_ZERO, D, DP, NATIVE)  # fmt: skip
            s = tl.dot(q_code, tl.trans(k_tile), input_precision=PRECISION) * k_scale[None, :]
        if K_ZERO and K_FOLD:
            s += q_sum[:, None] * k_zero[None, :]
        visible = keys[None, :] < border[:, None]
        if WINDOW:
            visible = visible & (keys[None, :] > last[:, None] - width)
        s = tl.where(visible, s * scale, float("-inf"))
        p, shrink, m, l = online(s, m, l)
        if V_WORDS > 0:
            at_S = page * C + keys % C
            words = word_tile(vc, at_S * vc_u + head * vc_k, inside, V_WORDS, DP // VP)
            at_S = at_S * vs_u + head * vs_k
            if V_FOLD:
                v_scale, v_zero = token_scales(vs, vz, at_S, inside, V_ZERO)
                most = tl.max(v_scale, 0)  # weights times scales stay near 1: small ones would not survive fp16
                most = tl.where(most == 0.0, 1.0, most)
                weights = p * (v_scale / most)[None, :]
                taken = taken * shrink[:, None] + weights.to(dtype).to(tl.float32) * most
                if V_ZERO:
                    zeros = zeros * shrink[:, None] + p * v_zero[None, :]
                accs = folded_sums(accs, shrink, weights.to(dtype), most, words, VP, dtype, V_BITS, V_SIGNED, PRECISION, PTX)
            else:
                v_scale, v_zero = word_scales(vs, vz, at_S, inside, dtype, V_ZERO, V_GROUP // VP, V_WORDS, DP // VP)
                accs = scaled_sums(accs, shrink, p.to(dtype), words, v_scale, v_zero, VP, dtype, V_BITS, V_SIGNED, PRECISION, PTX)
        else:
            v_tile, v_scale, v_zero = coded_tile(vc, vs, vz, page * (C // V_STEP) + (keys % C) // V_STEP, head, keys, inside, vc_u, vc_k,
                                                 vs_u, vs_k, dtype, V_KIND, V_BITS, V_SIGNED, V_GROUP, V_STEP, V_ZERO, D, DP, NATIVE)  # fmt: skip
            most = tl.max(v_scale, 0)
            weights = p * (v_scale / tl.where(most == 0.0, 1.0, most))[None, :]
            acc = accs[0] * shrink[:, None] + tl.dot(weights.to(dtype), v_tile, input_precision=PRECISION) * most
            if V_ZERO and V_FOLD:
                acc += tl.sum(p * v_zero[None, :], 1)[:, None]
            accs = (acc,)

    if V_WORDS > 0 and V_FOLD:
        accs = settled(accs, tl.sum(taken, 1), tl.sum(zeros, 1), VP, V_BITS, V_SIGNED, HALF)
    acc = in_turn(accs, VP)
    if split == tl.num_programs(2) - 1:
        for start in tl.range(exact_start, end, BLOCK_S, num_stages=1):  # short: not worth shared memory of its own
            keys = start + tl.arange(0, BLOCK_S)
            inside = keys < end
            k_tile = exact_tile(k_new, k_tail, keys, inside, old, first, slot, head, kn_n, kn_k, t_s, t_w, t_k, W, D, DP)
            s = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * scale
            visible = (keys[None, :] >= border[:, None]) & (keys[None, :] <= last[:, None])
            if WINDOW:
                visible = visible & (keys[None, :] > last[:, None] - width)
            p, shrink, m, l = online(tl.where(visible, s, float("-inf")), m, l)
            v_tile = exact_tile(v_new, v_tail, keys, inside, old, first, slot, head, vn_n, vn_k, t_s, t_w, t_k, W, D, DP)
            acc = tl.dot(p.to(own), v_tile, acc * shrink[:, None], input_precision=PRECISION)

    acc = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    to = out + (at_row * out_n + at_head * out_h + split * out_s)[:, None] + d[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=valid[:, None] & (d < D)[None, :])
    if SPLIT:
        tl.store(lse + at_row * lse_n + at_head * lse_h + split, log_sum(m, l), mask=valid)


def refusal(pages: CodedPages, q_NHD: Tensor) -> str | None:
    """Why the kernel does not read this format, or None."""
    format = pages.format
    if format.apart:
        return "channels set apart are read by the PyTorch path only"
    if format.scale_dtype == torch.bfloat16 and format.group is not None:
        return "scales in bf16 are read by the PyTorch path only; use float16"
    if pages.length * format.bits % 8 or (format.group or 8) * format.bits % 8:
        return f"{format.bits}-bit codes of {pages.length} elements in groups of {format.group} do not fill whole bytes"
    return None


def words_of(keys: CodedPages, values: CodedPages) -> tuple[int, int]:
    """16-bit words of a head (of a channel's unit, where groups lie along the tokens) that planes are cut from; 0 and 0 where not.

    Only integers are read so, with scales that fp16 holds; values only where groups lie along the head.
    """
    found = []
    for pages, is_key in ((keys, True), (values, False)):
        format, D = pages.format, pages.length
        P = 16 // format.bits
        fits = format.kind == "int" and format.scale_dtype == torch.float16 and pages.coded.codes.shape[-1] % 2 == 0
        if format.step > 1:
            fits = fits and is_key and format.step % P == 0
            found.append(format.step // P if fits else 0)
        else:
            least = 32 if format.group == D else 16  # with fewer columns a plane's product falls apart
            fits = fits and D % P == 0 and power_of_two(D) // P >= least and (format.group or D) % P == 0
            found.append(D // P if fits else 0)
    return (found[0], found[1]) if all(found) else (0, 0)


def side(pages: CodedPages, letter: str, words: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Tensors, strides and constants of keys' or values' pages, named as the kernel's arguments; strides of codes in words, if read so."""
    format, coded = pages.format, pages.coded
    codes = (coded.codes.view(torch.int16) if words else coded.codes).flatten(0, 1)
    scale = (coded.codes if coded.scale is None else coded.scale).flatten(0, 1)
    zero = scale if coded.zero is None else coded.zero.flatten(0, 1)
    tensors = {f"{letter}c": codes, f"{letter}s": scale, f"{letter}z": zero}
    strides = {f"{letter}c_u": codes.stride(0), f"{letter}c_k": codes.stride(1), f"{letter}s_u": scale.stride(0), f"{letter}s_k": scale.stride(1)}
    L = letter.upper()
    constants = {
        f"{L}_KIND": KINDS[format.kind], f"{L}_BITS": format.bits, f"{L}_SIGNED": format.symmetric, f"{L}_GROUP": format.group or 0,
        f"{L}_STEP": format.step, f"{L}_ZERO": coded.zero is not None, f"{L}_WORDS": words,
    }  # fmt: skip
    return tensors, strides, constants


def check_step(q_NHD: Tensor, keys: CodedPages, values: CodedPages, k: Exact, v: Exact, tables_BJ: Tensor, rows_B4: Tensor) -> None:
    """Raise ``KernelError`` for formats, shapes, layouts and devices that the kernel does not read.

    Pages of a plan on ``meta``, which is compiled and never run, may lie elsewhere.
    """
    ranks = q_NHD.dim(), k.fresh.dim(), tables_BJ.dim()
    if ranks != (3, 3, 2) or rows_B4.shape != (len(tables_BJ), 4) or rows_B4.dtype != torch.int64:
        raise KernelError(
            f"q {tuple(q_NHD.shape)}, k {tuple(k.fresh.shape)}, tables {tuple(tables_BJ.shape)} and rows {tuple(rows_B4.shape)} in {rows_B4.dtype} "
            "do not fit: want [N, H, D], [N, K, D], [B, J] and [B, 4] in torch.int64"
        )
    (N, _, D), K = q_NHD.shape, k.fresh.shape[1]
    for name, pages in (("keys", keys), ("values", values)):
        if reason := refusal(pages, q_NHD):
            raise KernelError(reason)
        if (pages.page_size, pages.coded.codes.shape[2], pages.length) != (keys.page_size, K, D):
            raise KernelError(
                f"pages of {name} hold {pages.page_size} tokens, {pages.coded.codes.shape[2]} heads of {pages.length}; "
                f"want {keys.page_size} tokens, {K} heads of {D}, as the keys' pages and the step have"
            )
        if pages.coded.codes.device != q_NHD.device and q_NHD.device.type != "meta":
            raise KernelError(f"pages of {name} are on {pages.coded.codes.device}, q on {q_NHD.device}; move one of them")
    for name, x in (("k", k.fresh), ("v", v.fresh), ("k tails", k.tails), ("v tails", v.tails)):
        if x.device != q_NHD.device:
            raise KernelError(f"{name} is on {x.device}, q on {q_NHD.device}; move one of them")
        if x.numel() and x.stride(-1) != 1:
            raise KernelError(f"the last axis of {name} must be dense, its stride is {x.stride(-1)}; call .contiguous()")
    alike = k.fresh.shape == v.fresh.shape and k.tails.shape == v.tails.shape
    if not alike or len(k.fresh) < N or k.fresh.shape[2] != D or k.tails.shape[2:] != (K, D):
        raise KernelError(
            f"k {tuple(k.fresh.shape)}, v {tuple(v.fresh.shape)}, tails {tuple(k.tails.shape)} and {tuple(v.tails.shape)} do not fit: "
            f"want [{N}, K, {D}] and [slots, W, {K}, {D}], the same of both"
        )
    check_whole(rows=rows_B4)
    check_rows(q=q_NHD, tables=tables_BJ, rows=rows_B4)


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
    words = words_of(keys, values) if by_words else (0, 0)
    packed = min(p.format.bits for p in (keys, values)) < 8  # unpacking takes registers
    narrow = block_m > 16 if words[0] else packed
    block_s = block_s or min(rule["block_s"], 32 if narrow else 128 if words[0] else 64)
    blocks = B if one_each else N // (block_m // G) + B
    if splits is None:
        splits = splits_for(chip, K * blocks, J * C, block_s)
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
        ONE_EACH=one_each, WINDOW=bool(window), SPLIT=splits > 1, NATIVE=chip.float8,
        HALF=not exact and (words[0] > 0 or all(p.format.group in (None, D) and p.format.step == 1 for p in (keys, values))),
        PRECISION="ieee", PTX=chip.capability > 0,
    )  # fmt: skip
    launches = [Launch(attend_codes, (K, blocks, splits), args, constants, warps or (4 if D <= 128 else 8), stages or rule["stages"])]
    return launches if splits == 1 else [*launches, plan_merge(target, lse, out_NHD)]
