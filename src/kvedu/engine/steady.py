"""A decode step over tensors that keep their addresses, so that it can be recorded."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor

from kvedu.caches.layout import Row
from kvedu.caches.paged import PagedCache, PagedView
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.quantized_view import QuantizedPagedView
from kvedu.caches.view import View
from kvedu.kernels.paged_attention import PagedLayout, paged_attention, paged_attention_reference, paged_write, takes
from kvedu.kernels.quantized_attention import QuantizedLayout
from kvedu.kernels.quantized_pages import CodedPages
from kvedu.kernels.transfer import put_into


class SteadyView(View):
    """B rows of one token, block tables of J pages. Rows that nobody needs read and write the spare page alone."""

    meet = PagedView.meet

    def __init__(self, cache: PagedCache, batch: int, width: int) -> None:
        View.__init__(self, cache, ())
        self.batch, self.width, self.spare = batch, width, cache.spare_page
        ints = {"dtype": torch.int64, "device": cache.device}
        self.ids, self.positions, self.slot_mapping = (torch.zeros(batch, **ints) for _ in range(3))
        self.tables = torch.zeros(batch, width, dtype=torch.int32, device=cache.device)
        self.layout = PagedLayout(self.tables, torch.zeros(batch, 3, **ints), one_each=True)
        self._tables: list[list[int]] = [[]] * batch  # what lies in each row of the tables, here
        self._padded = torch.zeros(batch, width, dtype=torch.int32, device="cpu")

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        k_PCKD, v_PCKD = self.cache.k[layer], self.cache.v[layer]
        attend = paged_attention if takes(q_NHD, k_PCKD) else paged_attention_reference  # no kernel here: for tests and for reading
        return attend(q_NHD, k_PCKD, v_PCKD, self.layout, self.window(layer))

    def load(self, ids: Sequence[int] | Tensor, rows: Sequence[Row]) -> None:
        """Copy a step's numbers in; ``ids`` may be on the device already."""
        C, idle = self.cache.page_size, self.batch - len(rows)
        tables = [self.cache.tables.tables[row.seq] for row in rows] + [[self.spare]] * idle
        held = [row.start for row in rows] + [0] * idle
        if isinstance(ids, Tensor):
            self.ids[: len(rows)].copy_(ids)
        else:
            put_into(self.ids, ids)
        put_into(self.positions, [row.new[0] for row in rows] + [0] * idle)
        put_into(self.slot_mapping, [table[old // C] * C + old % C for table, old in zip(tables, held)])
        self._load_tables(tables)
        self._place(rows, tables, held)

    def _load_tables(self, tables: list[list[int]]) -> None:
        """Tables that are not what they were in the step before: a sequence gets a page only now and then."""
        changed = [i for i, (table, last) in enumerate(zip(tables, self._tables)) if table != last]
        padded = self._padded.numpy()
        for i in changed:
            padded[i] = 0
            padded[i, : len(tables[i])] = tables[i]
        if changed:
            put_into(self.tables, self._padded)
        for i in changed:
            self._tables[i] = tables[i].copy()

    def _place(self, rows: Sequence[Row], tables: list[list[int]], held: list[int]) -> None:
        """What else a row's place in the batch decides; ``held`` are tokens before its own."""
        put_into(self.layout.rows, [[row, 1, old] for row, old in enumerate(held)])

    def begin(self) -> None:
        """Forget what the step before left: every layer is appended anew, the angles are computed anew."""
        self.appended.clear()
        self._turn = None

    def end(self) -> None:
        """What is left to do when all layers are through."""


class SteadyCodes(SteadyView, QuantizedPagedView):
    """The same over pages of codes. Each row completes one unit of each side a step, be it one in the spare page, and, where the format
    has tails, puts its token into one, be it the spare one."""

    cache: PagedQuantizedCache
    meet, attend = QuantizedPagedView.meet, QuantizedPagedView.attend

    def __init__(self, cache: PagedQuantizedCache, batch: int, width: int) -> None:
        super().__init__(cache, batch, width)
        ints = {"dtype": torch.int64, "device": cache.device}
        # One row more than the batch has: units that are not complete yet are made of the spare tail.
        self.unit_rows, self.units = torch.zeros(batch + 1, 4, **ints), [torch.zeros(batch, 3, **ints) for _ in "kv"]
        self.layout = QuantizedLayout(self.tables, self.unit_rows[:batch], cache.format.residual, cache.format.unit, one_each=True)
        self.tail_slots, self.fresh, self.plain = torch.zeros(batch, **ints), {}, True

    def _place(self, rows: Sequence[Row], tables: list[list[int]], held: list[int]) -> None:
        cache, unit, W = self.cache, self.cache.format.unit, self.cache.window_kept
        slots = [cache.slot(row.seq) for row in rows] + [cache.tails.spare] * (self.batch - len(rows))
        put_into(self.unit_rows, [[i, 1, old, slot] for i, (old, slot) in enumerate(zip(held, slots))] + [[0, 1, unit, cache.tails.spare]])
        for side, units in enumerate(self.units):
            pages = cache.pages[0][side]
            put_into(units, [self._unit(pages, table, i, old) for i, (table, old) in enumerate(zip(tables, held))])
        if W:
            put_into(self.tail_slots, [slot * W + old % W for slot, old in zip(slots, held)])

    def _unit(self, pages: CodedPages, table: list[int], row: int, old: int) -> list[int]:
        step = pages.format.step
        if (old + 1) % step:
            return [pages.unit_at([self.spare], 0), self.batch, 0]
        return [pages.unit_at(table, old + 1 - step), row, old + 1 - step]

    def begin(self) -> None:
        super().begin()
        self.fresh.clear()

    def end(self) -> None:
        for layer in range(self.cache.n_layers if self.cache.window_kept else 0):
            paged_write(*self.fresh[layer], *self.cache.tails[layer], self.tail_slots)
