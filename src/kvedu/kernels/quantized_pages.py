"""Keys or values of one layer as codes in pages, and their way in: ``encode`` of ``kernels/codes``, unit by unit.

A page holds C tokens: C / step units (a token where a group lies along the head, else the tokens of one
group), each ``[K, bytes]`` of codes with its scales. Written by ``native/quantize.cpp`` where that runs, bit for bit
what ``encode`` gives; else by ``encode``.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Sequence

import torch
from torch import Tensor

from kvedu.errors import CacheError
from kvedu.kernels import native
from kvedu.kernels.codes import Coded, Format, decode, empty, encode
from kvedu.kernels.launch import triton_wanted
from kvedu.kernels.transfer import put
from kvedu.units import Cost

KINDS = {"int": 0, "e4m3": 1, "e5m2": 2}
SCALES = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 4}


class Exact(NamedTuple):
    """Numbers as they came: those of the step ``[N, K, D]``, and of each sequence the last ones before it.

    Token t of the sequence with tail slot s lies at ``tails[s, t % W]``, ``[slots, W, K, D]``; W is 0 where no tail is kept.
    """

    fresh: Tensor
    tails: Tensor


class CodedPages:
    """P pages of ``page_size`` tokens, K vectors of ``length`` each, in a format that is not ``rotated``.

    ``apart_Kn`` names the channels that the format sets apart. Raises ``CacheError`` where a page holds no whole groups.
    """

    def __init__(
        self,
        format: Format,
        n_pages: int,
        page_size: int,
        vectors: int,
        length: int,
        device: torch.device,
        apart_Kn: Tensor | None = None,
    ) -> None:
        if page_size % format.step:
            raise CacheError(
                f"pages of {page_size} tokens hold no whole groups of {format.step} tokens that share a scale; "
                f"use a page size that is a multiple of {format.step}"
            )
        self.format, self.page_size, self.length, self.apart = format, page_size, length, apart_Kn
        self.units = page_size // format.step
        one = empty(format, vectors, length, device)
        self.coded = Coded(
            *(None if x is None else torch.zeros(n_pages, self.units, *x.shape[1:], dtype=x.dtype, device=device) for x in one)
        )
        words = [
            KINDS[format.kind], format.bits, format.group or 0, format.along == "tokens",
            format.kind == "int" and format.symmetric, 0 if one.scale is None and not format.apart else SCALES[format.scale_dtype],
            format.apart, *(0 if x is None else x.data_ptr() for x in (*self.coded, apart_Kn)),
        ]  # fmt: skip
        self.words = (ctypes.c_int64 * 12)(*words)
        """The same for the kernels, as ``native/codes.h`` reads it."""

    @property
    def tensors(self) -> list[Tensor]:
        """What is stored; the first axis counts pages."""
        return self.coded.tensors

    def unit_at(self, table: Sequence[int], token: int) -> int:
        """Where the unit of a sequence's token lies: an index into all units."""
        page, offset = divmod(token, self.page_size)
        return table[page] * self.units + offset // self.format.step

    def read(self, table: Sequence[int], tokens: int, dtype: torch.dtype) -> Tensor:
        """The first ``tokens`` of a sequence, as numbers ``[tokens, K, length]``; whole units that were written."""
        units = [self.unit_at(table, t) for t in range(0, tokens, self.format.step)]
        index = put(units, self.coded.codes.device)
        coded = Coded(*(None if x is None else x.flatten(0, 1)[index] for x in self.coded))
        return decode(coded, self.format, self.length, dtype, self.apart)[:tokens]

    def round(self, x_TKD: Tensor) -> Tensor:
        """What would be read of these tokens, a multiple of the format's step, if they were written."""
        return decode(encode(x_TKD, self.format, self.apart), self.format, self.length, x_TKD.dtype, self.apart)


def quantized_write_reference(pages: CodedPages, exact: Exact, rows_B4: Tensor, units_M3: Tensor) -> None:
    """Code the units of a step: rows of ``units_M3`` are (where it lies, whose it is, its first token).

    ``rows_B4`` has a row for each sequence of the step: first row among the step's, new tokens, tokens
    before them, slot of its tail.
    """
    slots, W = exact.tails.shape[:2]
    source, rows = [], rows_B4.tolist()
    for _, b, token in units_M3.tolist():
        first, _, start, slot = rows[b]
        for t in range(token, token + pages.format.step):
            source.append(slot * W + t % W if t < start else slots * W + first + t - start)
    x_TKD = torch.cat((exact.tails.flatten(0, 1).to(exact.fresh.dtype), exact.fresh))[source]
    new = encode(x_TKD, pages.format, pages.apart)
    for x, y in zip(pages.coded, new):
        if x is not None:
            x.flatten(0, 1)[units_M3[:, 0].to(x.device)] = y


def quantized_write(
    pages: CodedPages, exact: Exact, rows_B4: Tensor, units_M3: Tensor, *, triton: bool | None = None
) -> None:
    """The same, natively where that can be, by ``quantize_triton`` on a GPU. Cost: ``cost``."""
    if not len(units_M3):
        return
    fresh_NKD, tails = exact
    if triton_wanted(triton, fresh_NKD):
        from kvedu.kernels.coded_step import refusal

        if triton or refusal(pages, fresh_NKD) is None:
            from kvedu.kernels.quantize_triton import plan_quantize

            return plan_quantize(pages, exact, rows_B4, units_M3).run()
    if not (native.usable(fresh_NKD, tails) and fresh_NKD.stride(1) == fresh_NKD.shape[2] and tails.is_contiguous()):
        return quantized_write_reference(pages, exact, rows_B4, units_M3)
    native.library().kvedu_quantize(
        fresh_NKD.dtype is torch.float32, pages.words, fresh_NKD.data_ptr(), fresh_NKD.stride(0), tails.data_ptr(),
        rows_B4.data_ptr(), units_M3.data_ptr(), len(units_M3), *fresh_NKD.shape[1:], tails.shape[1], torch.get_num_threads(),
    )  # fmt: skip


def cost(tokens: int, kv_heads: int, head_dim: int, bits: float, bytes_per_element: int = 2) -> Cost:
    """Of ``quantized_write``, for one side (keys or values): each number read once, its code written, and its share of the scales.

    ``bits`` are stored bits per element, scales included (``Quantized.bits_per_element``). 5 FLOPs an element: the ends of a
    group's range, and the zero point off, over the scale, rounded.
    """
    elements = tokens * kv_heads * head_dim
    return Cost(5 * elements, elements * bytes_per_element, elements * bits / 8)
