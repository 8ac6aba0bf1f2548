"""What the kernel over quantized pages asks of a step before it is planned: formats, shapes, how codes are read and places counted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.kernels.launch import Chip, KernelError, check_rows, check_whole, power_of_two
from kvedu.kernels.quantized_pages import KINDS, CodedPages, Exact
from kvedu.kernels.splits import padded


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


def words_of(keys: CodedPages, values: CodedPages, chip: Chip) -> tuple[int, int]:
    """16-bit words of a head (of a channel's unit, where groups lie along the tokens) that planes are cut from; 0 and 0 where not.

    Scales must be of 16 bits, values' groups lie along the head, and NVIDIA's chips know e4m3 (from 8.9 on).
    """
    found = []
    for pages, is_key in ((keys, True), (values, False)):
        format, D = pages.format, pages.length
        P = 16 // format.bits
        fits = format.kind != "e4m3" or chip.float8 or not chip.capability
        fits = fits and (format.group is None or format.scale_dtype == torch.float16) and pages.coded.codes.shape[-1] % 2 == 0
        if format.step > 1:
            fits = fits and is_key and format.step % P == 0
            found.append(format.step // P if fits else 0)
        else:
            least = 32 if format.group in (None, D) else 16  # with fewer columns a plane's product falls apart
            fits = fits and D % P == 0 and power_of_two(D) // P >= least and (format.group or D) % P == 0
            found.append(D // P if fits else 0)
    return (found[0], found[1]) if all(found) else (0, 0)


def near(*pages: CodedPages) -> bool:
    """Whether 32 bits count every token, every scale and every byte of codes."""
    most = max(max(x.stride(0) * len(x) for x in (p.coded.codes, p.coded.scale) if x is not None) for p in pages)
    return most < 2**31 and all(len(p.coded.codes) * p.page_size < 2**31 for p in pages)


def coded_bytes(keys: CodedPages, values: CodedPages, block_m: int, block_s: int, buffers: int, itemsize: int) -> int:
    """Shared memory of a program, about: tiles of codes in ``buffers``, its queries, and weights between the two products."""
    D = padded(keys.length)
    return buffers * block_s * D * (keys.format.bits + values.format.bits) // 8 + itemsize * block_m * (D + block_s)


def side(pages: CodedPages, letter: str, words: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Tensors, strides and constants of keys' or values' pages, named as the kernel's arguments.

    Strides of codes are in bytes, or in words if read so; from unit to unit they count by 8 of those where they can.
    """
    format, coded = pages.format, pages.coded
    codes = (coded.codes.view(torch.int16) if words else coded.codes).flatten(0, 1)
    scale = (coded.codes if coded.scale is None else coded.scale).flatten(0, 1)
    zero = scale if coded.zero is None else coded.zero.flatten(0, 1)
    unit = 1 if codes.stride(0) % 8 else 8
    tensors = {f"{letter}c": codes, f"{letter}s": scale, f"{letter}z": zero}
    strides = {
        f"{letter}c_u": codes.stride(0) // unit, f"{letter}c_k": codes.stride(1), f"{letter}s_u": scale.stride(0), f"{letter}s_k": scale.stride(1),
    }  # fmt: skip
    L = letter.upper()
    constants = {
        f"{L}_KIND": KINDS[format.kind], f"{L}_BITS": format.bits, f"{L}_SIGNED": format.symmetric, f"{L}_GROUP": format.group or 0,
        f"{L}_STEP": format.step, f"{L}_ZERO": coded.zero is not None, f"{L}_WORDS": words, f"{L}_UNIT": unit,
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


def check_write(pages: CodedPages, exact: Exact, rows_B4: Tensor, units_M3: Tensor) -> None:
    """Raise ``KernelError`` for formats, shapes, layouts and devices that the kernel which codes units does not read."""
    fresh, tails = exact
    if fresh.dim() != 3 or rows_B4.dim() != 2 or rows_B4.shape[1] != 4 or units_M3.dim() != 2 or units_M3.shape[1] != 3:
        came = f"fresh {tuple(fresh.shape)}, rows {tuple(rows_B4.shape)} and units {tuple(units_M3.shape)}"
        raise KernelError(f"{came} do not fit: want [N, K, D], [B, 4] and [M, 3]")
    if reason := refusal(pages, fresh):
        raise KernelError(reason)
    (K, D), held = fresh.shape[1:], (pages.coded.codes.shape[2], pages.length)
    if held != (K, D) or tails.shape[2:] != (K, D):
        raise KernelError(f"pages hold {held[0]} heads of {held[1]}, tails are {tuple(tails.shape)}; want {K} heads of {D} in both, as the step's own {tuple(fresh.shape)}")
    for name, x in (("fresh", fresh), ("tails", tails)):
        if x.numel() and x.stride(-1) != 1:
            raise KernelError(f"the last axis of {name} must be dense, its stride is {x.stride(-1)}; call .contiguous()")
    for name, x in (("tails", tails), ("rows", rows_B4), ("units", units_M3), ("pages", pages.coded.codes)):
        if x.device != fresh.device and fresh.device.type != "meta":
            raise KernelError(f"{name} are on {x.device}, the step's own numbers on {fresh.device}; move one of them")
    check_whole(rows=rows_B4, units=units_M3)
