"""The paged cache in few bits: pages hold codes and scales, and each sequence its last tokens as they came, beside them.

Codes are written when a token comes (or a group of tokens is complete), so a full page is complete and can be shared,
copied on write, swapped and remembered like any other. A query sees a token as a code once it is old enough
(``kernels/quantized_attention``): what it sees depends on positions alone, so outputs depend neither on how a prompt
was cut into steps, nor on who else is in the batch, nor on what was preempted and computed again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Hashable, Sequence

import torch
from torch import Tensor

from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.contract import storage_bytes
from kvedu.caches.formats import Format
from kvedu.caches.kv_format import KVFormat, checked_apart
from kvedu.caches.layout import Row
from kvedu.caches.paged import PagedCache
from kvedu.caches.quantized_view import QuantizedPagedView
from kvedu.caches.swap import SwapSpace
from kvedu.caches.swap_tails import TailedSwapSpace
from kvedu.caches.tails import Tails
from kvedu.config import ModelConfig
from kvedu.errors import CacheError, CacheFull
from kvedu.kernels.hadamard import hadamard
from kvedu.kernels.quantized_pages import CodedPages, Exact, quantized_write
from kvedu.kernels.transfer import put

Rows = list[tuple[Tensor, Tensor]]
"""Keys and values of some tokens as they came, a pair for each layer."""


class PagedQuantizedCache(PagedCache):
    """Pages in a ``KVFormat``; other arguments as for ``PagedCache``.

    ``fused`` attends over the codes where they lie, where the CPU kernel runs; without it, and elsewhere, keys and values are
    decoded first. A format with a tail has room for ``max_sequences`` of them, and the last ``undo`` tokens of a
    sequence can be taken back (rejected drafts); one without has no such limits.

    Raises ``CacheError`` for pages that hold no whole groups, for ``reuse`` together with ``residual``,
    for taking back more than ``undo`` tokens, and for thinning out tokens other than a tree's path; ``CacheFull``
    where a page or a tail is missing.
    """

    view = QuantizedPagedView
    exceptions = {
        "keeps exact values": "tokens that are old enough come back rounded to their format",
        "truncates as if never appended": "what was seen as it came is kept for the last tokens only; a deeper cut is refused",
    }

    def __init__(
        self,
        config: ModelConfig,
        *,
        format: KVFormat,
        fused: bool = True,
        max_sequences: int = 64,
        undo: int = 32,
        **kwargs,
    ) -> None:
        for side in (format.keys, format.values):
            side.check_head(config.D)
        if format.residual and kwargs.get("reuse") is not None:
            raise CacheError(
                f"a prefix is remembered as codes, and the {format.residual} tokens that its continuation would see as they came "
                "are gone; use residual=0, or no reuse"
            )
        self.format, self.fused, self.max_sequences = format, fused, max_sequences
        self.window_kept = format.tail + undo if format.tail else 0
        self.undo = undo if format.tail else None
        super().__init__(config, **kwargs)
        self._trees: dict[int, tuple[int, Rows]] = {}

    def _make_pages(self) -> None:
        K, D, W = self.config.K, self.config.D, self.window_kept
        sides, spare = (self.format.keys, self.format.values), self.spare_page is not None
        self.apart = checked_apart(self.format.apart, *sides, self.n_layers, self.config, self.device)
        plain = [replace(side, rotated=False) for side in sides]  # rotated ones are turned before they come to the pages

        def pages(side: Format, layer: int) -> CodedPages:
            apart = self.apart[layer] if side.apart else None
            return CodedPages(side, self.n_blocks + spare, self.page_size, K, D, self.device, apart)

        self.pages = [tuple(pages(side, layer) for side in plain) for layer in range(self.n_layers)]
        """Keys' and values' pages of each layer."""
        self.tails = Tails(self.n_layers, self.max_sequences, W, K, D, self.dtype, self.device, spare)
        """The last ``window_kept`` tokens of each sequence as they came."""

    @classmethod
    def within(
        cls,
        config: ModelConfig,
        budget_bytes: int,
        format: KVFormat,
        *,
        page_size: int = 16,
        dtype: torch.dtype = torch.float32,
        max_sequences: int = 64,
        undo: int = 32,
        **kwargs,
    ) -> PagedQuantizedCache:
        """As many pages as a budget pays for beside the tails. Raises ``CacheFull`` if it does not pay for one."""
        spare = bool(kwargs.get("spare"))
        tails = (max_sequences + spare) * (format.tail + undo if format.tail else 0) * kv_bytes_per_token(config, dtype.itemsize)
        page = config.L * sum(side.sized.bytes_of(page_size, config.K, config.D) for side in (format.keys, format.values))
        n_pages = (budget_bytes - tails) // page - spare
        if n_pages < 1:
            raise CacheFull(
                f"{budget_bytes} bytes do not pay for {max_sequences + spare} tails, {tails} bytes, and {'two pages' if spare else 'one page'} of {page_size} "
                f"tokens, {page} bytes"
            )
        return cls(
            config, format=format, n_pages=n_pages, page_size=page_size, dtype=dtype, max_sequences=max_sequences, undo=undo, **kwargs
        )

    @property
    def page_tensors(self) -> list[Tensor]:
        return [x for pair in self.pages for side in pair for x in side.tensors]

    @property
    def nbytes(self) -> int:
        held = [*self.page_tensors, *self.tails.tensors]
        return storage_bytes(held if self.apart is None else [*held, self.apart])

    def swap_space(self, budget_bytes: int) -> SwapSpace:
        return TailedSwapSpace(self, budget_bytes) if self.window_kept else SwapSpace(self, budget_bytes)

    def slot(self, seq: int) -> int:
        """Where a sequence's tail lies."""
        return self.tails.slot(seq)

    def open_table(self, positions: Sequence[int]) -> int:
        self.tails.open(self._next_id, len(positions))
        return super().open_table(positions)

    def close_table(self, seq: int) -> Sequence[int]:
        positions = super().close_table(seq)
        self.tails.close(seq)
        self._trees.pop(seq, None)
        return positions

    def add_prefix(self, tokens: Sequence[int], salt: Hashable = None) -> tuple[int, int]:
        seq, reused = super().add_prefix(tokens, salt)
        self.tails.exact_from[seq] = reused
        return seq, reused

    def _allocate(self, seq: int, source: int | None) -> None:
        if source in self._trees:
            raise CacheError(f"sequence {source} ends in a token tree; keep() one path of it before it is forked")
        self.tails.open(seq)
        super()._allocate(seq, source)
        if source is not None:
            self.tails.copy(source, seq)

    def _drop(self, seq: int) -> None:
        super()._drop(seq)
        self.tails.close(seq)
        self._trees.pop(seq, None)

    # -- a step --------------------------------------------------------------------------------

    def turned(self, x: Tensor, side: int) -> Tensor:
        """Queries, keys (side 0), values (1) or outputs as the pages hold them, and back: rotated where the format says so."""
        return hadamard(x) if (self.format.keys, self.format.values)[side].rotated else x

    def units(self, side: int, table: Sequence[int], row: int, start: int, stop: int) -> list[list[int]]:
        """Units of a sequence that are complete at ``stop`` and were not at ``start``, as ``quantized_write`` takes them."""
        if not self.pages:  # a stage without layers
            return []
        pages = self.pages[0][side]
        step = pages.format.step
        return [[pages.unit_at(table, u * step), row, u * step] for u in range(start // step, stop // step)]

    def _reserve(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if row.seq in self._trees:
                start, layers = self._trees.pop(row.seq)
                self._take_in(row.seq, start, layers)
        super()._reserve(rows)

    def _write(self, view: QuantizedPagedView, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        fresh = tuple(_dense(self.turned(x, side).to(self.dtype)) for side, x in enumerate((k_NKD, v_NKD)))
        view.keep_fresh(layer, fresh)
        for pages, exact, units in zip(self.pages[layer], view.exact(layer), view.units):
            quantized_write(pages, exact, view.unit_rows, units)

    def _commit(self, view: QuantizedPagedView) -> None:
        chains = [row for row in view.rows if row.parents is None]
        self.tails.keep(view.fresh, [(row.seq, row.first, row.start, row.total) for row in chains])
        for row in view.rows:
            if row.parents is not None:  # of a tree only a path stays: coded when keep() has said which
                self._trees[row.seq] = row.start, [
                    (view.fresh[layer][0][row.rows], view.fresh[layer][1][row.rows]) for layer in range(self.n_layers)
                ]
        super()._commit(view)  # rows count what was committed before them, so this comes last

    def _rollback(self, view: QuantizedPagedView) -> None:
        for row in view.rows:
            self.tables.shrink(row.seq, row.start)

    def _take_in(self, seq: int, start: int, layers: Rows) -> None:
        """Tokens that wait as they came join a sequence of ``start`` tokens: codes, and tail."""
        total = start + len(layers[0][0]) if layers else start
        rows_B4 = put([[0, total - start, start, self.slot(seq)]], self.device)
        units = [self.units(side, self.tables.tables[seq], 0, start, total) for side in (0, 1)]
        for layer, pair in enumerate(layers):
            for pages, fresh, tails, unit in zip(self.pages[layer], pair, self.tails[layer], units):
                quantized_write(pages, Exact(fresh, tails), rows_B4, put(unit, self.device).view(-1, 3))
        self.tails.keep(dict(enumerate(layers)), [(seq, 0, start, total)])

    # -- what a sequence holds --------------------------------------------------------------------

    def coded(self, before: int) -> int:
        """Tokens that a query with so many before it sees as codes."""
        return max(0, before - self.format.residual) // self.format.unit * self.format.unit

    def as_codes(self, layer: int, side: int, seq: int, stop: int, written: int, late: Tensor) -> Tensor:
        """The first ``stop`` tokens as their codes say, turned; those after ``written`` wait in ``late`` and are coded now."""
        pages = self.pages[layer][side]
        x_SKD = pages.read(self.tables.tables[seq], min(stop, written), self.dtype)
        return x_SKD if stop <= written else torch.cat((x_SKD, pages.round(late[: stop - written])))

    def as_they_came(self, layer: int, side: int, seq: int, first: int, start: int, late: Tensor) -> Tensor:
        """Tokens from ``first`` on, turned: up to ``start`` from the tail, then ``late``."""
        old = self.tails.read(layer, side, seq, first, start) if first < start else late[:0]
        return torch.cat((old, late[max(0, first - start) :]))

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        start, layers = self._trees.get(seq, (length, None))
        border = self.coded(length) if layers is None or self.format.unit == 1 else min(self.coded(length), self.coded(start))
        sides = []
        for side in (0, 1):
            late = self.tails[layer][side][0, :0] if layers is None else layers[layer][side][: length - start]
            codes = self.as_codes(layer, side, seq, border, start, late)
            x_SKD = torch.cat((codes, self.as_they_came(layer, side, seq, border, start, late)))
            sides.append(self.turned(x_SKD, side))
        return sides[0], sides[1]

    def _shrink(self, seq: int, length: int) -> None:
        if seq in self._trees:
            start, layers = self._trees.pop(seq)
            if length > start:
                self._trees[seq] = start, [(k[: length - start], v[: length - start]) for k, v in layers]
                return self.tables.shrink(seq, length)
        if self.coded(length) < min(length, self.tails.exact_from[seq]):
            raise CacheError(
                f"sequence {seq} cannot be cut to {length} tokens: the next token would see {length - self.coded(length)} of them as "
                f"they came, and the tail goes back to token {self.tails.exact_from[seq]} only. Cut less, or give more undo"
            )
        self.tables.shrink(seq, length)

    def _compact(self, seq: int, indices: list[int]) -> None:
        start, layers = self._trees.get(seq, (len(self._positions[seq]), []))
        if indices[:start] == list(range(start)):
            path = [i - start for i in indices[start:]]
            self._trees.pop(seq, None)
            self.tables.shrink(seq, len(indices))
            if path:
                self._take_in(seq, start, [(k[path], v[path]) for k, v in layers])
        elif indices == list(range(len(indices))):
            self._shrink(seq, len(indices))
        elif self.window_kept:
            raise CacheError(
                "tokens cannot be thinned out here: groups of them share a scale, or the tail holds the last ones in order. Keep a "
                "tree's path or the first tokens, or use formats along the head without a residual"
            )
        else:
            if layers:
                del self._trees[seq]
                self._take_in(seq, start, layers)
            self._move(seq, indices)

    def _move(self, seq: int, indices: list[int]) -> None:
        """Codes of single tokens to their new places."""
        first = next(i for i, index in enumerate(indices) if i != index)
        old = put([slot for i in indices[first:] for slot in self.tables.slots(seq, i, i + 1)], self.device)
        moved = [x.flatten(0, 1)[old] for x in self.page_tensors]
        self.tables.shrink(seq, first)
        self._copy(self.tables.reserve({seq: (first, len(old))}))
        new = put(self.tables.slots(seq, first, len(indices)), self.device)
        for x, rows in zip(self.page_tensors, moved):
            x.flatten(0, 1)[new] = rows


def _dense(x_NKD: Tensor) -> Tensor:
    """Each token's row as one run of memory."""
    return x_NKD if x_NKD.stride(1) == x_NKD.shape[2] and x_NKD.stride(2) == 1 else x_NKD.contiguous()
