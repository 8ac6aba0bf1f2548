"""One forward pass over quantized pages: each query sees what is old enough as codes, the rest as it came."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Callable

import torch
from torch import Tensor

from kvedu.caches.layout import Row
from kvedu.caches.view import View
from kvedu.kernels.attention import attention_grouped, attention_reference
from kvedu.kernels.quantized_attention import QuantizedLayout, quantized_attention, takes
from kvedu.kernels.quantized_pages import Exact
from kvedu.kernels.rope_write import rope_write
from kvedu.kernels.transfer import move, put

if TYPE_CHECKING:
    from kvedu.caches.paged_quantized import PagedQuantizedCache


class QuantizedPagedView(View):
    """Attends over codes where they lie, all sequences in one call, where that kernel runs; else decodes them first.

    Trees, and sequences with gaps, are always decoded. A tree's nodes see each other as a chain's tokens
    would, with one exception: tokens of a tree that would share a scale are seen as they came.
    """

    cache: PagedQuantizedCache

    def __init__(self, cache: PagedQuantizedCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        self.fresh: dict[int, tuple[Tensor, Tensor]] = {}
        """Keys and values of the step as they came (turned), by layer; those of earlier layers only where they are needed."""
        self.plain = all(row.plain for row in rows)

    @cached_property
    def layout(self) -> QuantizedLayout:
        """Where the sequences of the step have their tokens."""
        cache, tables = self.cache, [self.cache.tables.tables[row.seq] for row in self.rows]
        longest = max(map(len, tables))
        return QuantizedLayout(
            put([[*table, *[0] * (longest - len(table))] for table in tables], cache.device, torch.int32),
            put([[row.first, row.count, row.start, cache.slot(row.seq)] for row in self.rows], cache.device),
            cache.format.residual,
            cache.format.unit,
            all(row.count == 1 for row in self.rows),
        )

    @cached_property
    def units(self) -> list[Tensor]:
        """For keys and for values, what this step completes: rows as ``quantized_write`` takes them, that point into ``unit_rows``."""
        made = []
        for side in (0, 1):
            units = [
                unit
                for i, row in enumerate(self.rows)
                if row.parents is None
                for unit in self.cache.units(side, self.cache.tables.tables[row.seq], i, row.start, row.total)
            ]
            made.append(put(units, self.cache.device).view(-1, 3))
        return made

    @cached_property
    def unit_rows(self) -> Tensor:
        """Whose tokens the units are made of: the rows of the layout."""
        return self.layout.rows

    def keep_fresh(self, layer: int, pair: tuple[Tensor, Tensor]) -> None:
        """Hold a layer's new keys and values until the step ends, or until the next layer comes."""
        if not self.cache.window_kept and all(row.parents is None for row in self.rows):
            self.fresh.clear()
        self.fresh[layer] = pair

    def exact(self, layer: int) -> list[Exact]:
        """Keys and values of a layer as they came: new ones and tails."""
        return [Exact(fresh, tails) for fresh, tails in zip(self.fresh[layer], self.cache.tails[layer])]

    @cached_property
    def _in_order(self) -> Tensor:
        """Slots of pages that hold the step's own tokens, a token each."""
        return torch.arange(len(self.positions), device=self.cache.device)

    def meet(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
        """Queries and keys are rotated in one pass, which leaves keys and values in rows of their own: they are coded from there."""
        if type(self).rotate is not View.rotate:
            return View.meet(self, layer, q_NHD, k_NKD, v_NKD)
        fresh = [torch.empty(len(x), 1, *x.shape[1:], dtype=self.cache.dtype, device=x.device) for x in (k_NKD, v_NKD)]
        q_NHD = rope_write(q_NHD, k_NKD, v_NKD, *self.turn(torch.float32), *fresh, self._in_order)
        self.append(layer, fresh[0][:, 0], fresh[1][:, 0])
        return self.attend(layer, q_NHD)

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        q_turned, exact = self.cache.turned(q_NHD, 0), self.exact(layer)
        if self.cache.fused and self.plain and takes(q_turned, *exact, *self.cache.pages[layer]):
            out_NHD = quantized_attention(q_turned, *self.cache.pages[layer], *exact, self.layout, self.window(layer))
            return self.cache.turned(out_NHD, 1)
        return self._decoded(layer, q_turned, _attention)

    def attend_reference(self, layer: int, q_NHD: Tensor) -> Tensor:
        """The law's own side: reference attention over both versions of the keys, one of which each query sees."""
        return self._decoded(layer, self.cache.turned(q_NHD, 0), attention_reference)

    def _decoded(self, layer: int, q_NHD: Tensor, attention: Callable[..., Tensor]) -> Tensor:
        outs = []
        for row in self.rows:
            k_SKD, v_SKD, visible = self._both(layer, row)
            outs.append(attention(q_NHD[row.rows], k_SKD, v_SKD, visible))
        return self.cache.turned(torch.cat(outs), 1)

    def _both(self, layer: int, row: Row) -> tuple[Tensor, Tensor, Tensor]:
        """A sequence's tokens as codes, then as they came, each as far as any query sees it so; and who sees which."""
        cache, tree = self.cache, row.parents is not None
        after = row.committed[-1] + 1 if row.start else 0
        age_S = torch.tensor([*range(row.start), *(row.start + p - after for p in row.new)])
        border_T = self.layout.coded(age_S[row.start :])
        if tree and cache.format.unit > 1:
            border_T = border_T.clamp(max=row.start // cache.format.unit * cache.format.unit)
        as_code_TS = age_S < border_T[:, None]
        most, least = int(border_T.max()), int(border_T.min())
        stop = row.total if tree and most > row.start else most
        least = min(least, row.start) if tree else least
        written = row.start if tree else row.total
        sides = []
        for side, late_TKD in enumerate(x[row.rows] for x in self.fresh[layer]):
            codes = cache.as_codes(layer, side, row.seq, stop, written, late_TKD)
            sides.append(torch.cat((codes, cache.as_they_came(layer, side, row.seq, least, row.start, late_TKD))))
        seen_TS, as_code_TS = self.visible(row, self.window(layer)), move(as_code_TS, cache.device)
        visible = torch.cat(((seen_TS & as_code_TS)[:, :stop], (seen_TS & ~as_code_TS)[:, least:]), dim=1)
        return sides[0], sides[1], visible

    def gather(self, layer: int, seq: int) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values as the next token of the sequence would see them."""
        row = next((row for row in self.rows if row.seq == seq), None)
        if row is None or layer not in self.fresh:
            return super().gather(layer, seq)
        cache, tree = self.cache, row.parents is not None
        border = cache.coded(row.total) if not tree or cache.format.unit == 1 else cache.coded(row.start)
        sides = []
        for side, late_TKD in enumerate(x[row.rows] for x in self.fresh[layer]):
            codes = cache.as_codes(layer, side, seq, border, row.start if tree else row.total, late_TKD)
            x_SKD = torch.cat((codes, cache.as_they_came(layer, side, seq, border, row.start, late_TKD)))
            sides.append(cache.turned(x_SKD, side))
        return sides[0], sides[1], put(row.positions, cache.device)


def _attention(q_THD: Tensor, k_SKD: Tensor, v_SKD: Tensor, visible_TS: Tensor) -> Tensor:
    """The fast path of PyTorch for one sequence."""
    k_BKSD, v_BKSD = (x_SKD.transpose(0, 1)[None] for x_SKD in (k_SKD, v_SKD))
    return attention_grouped(q_THD[None], k_BKSD, v_BKSD, visible_TS[None])[0]
