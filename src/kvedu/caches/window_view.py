"""Attention over a window where it lies: keys in the order of the ring, masks to match."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kvedu.caches.layout import Row
from kvedu.caches.ring import places
from kvedu.caches.view import View
from kvedu.kernels.attention import attention_grouped

if TYPE_CHECKING:
    from kvedu.caches.window import WindowCache


class WindowView(View):
    """Hides what is W or more positions back, but never a sink; reads keys in the order in which they lie."""

    def __init__(self, cache: WindowCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        self._orders: dict[int, Tensor] = {}
        self._masks: dict[tuple[int, int], Tensor] = {}

    def window(self, layer: int) -> int:
        """The cache's window, or the model's own where that is narrower (it then hides sinks too)."""
        own = super().window(layer)
        return min(own, self.cache.window) if own else self.cache.window

    def visible(self, row: Row, window: int | None) -> Tensor:
        if (row.seq, window) not in self._visible:
            seen_TS = row.visible(window)
            if window == self.cache.window and self.cache.sinks:
                seen_TS |= row.visible() & (torch.tensor(row.positions, device="cpu") < self.cache.sinks)
            self._visible[row.seq, window] = seen_TS.to(self.cache.device)
        return self._visible[row.seq, window]

    def order(self, row: Row) -> Tensor:
        """Which of the row's tokens (committed, then new) lies where ``stored`` has its i-th key; made once a step."""
        if row.seq not in self._orders:
            cache, n = self.cache, self.cache.in_ring(row)
            slots = places(row.positions[:n], cache.sinks, cache.window)
            here = dict(zip(slots, range(n)))  # of two tokens that had one place the later one is there
            order = [here[slot] for slot in sorted(here)] + list(range(n, row.total))
            self._orders[row.seq] = torch.tensor(order, device=cache.device)
        return self._orders[row.seq]

    def mask(self, row: Row, layer: int) -> Tensor | None:
        """Boolean ``[T, S]`` over keys as they lie; None where all of them are seen, as by a decoded token."""
        window = self.window(layer)
        if self.cache.alone(row) and window == self.cache.window:
            return None
        if (row.seq, window) not in self._masks:
            self._masks[row.seq, window] = self.visible(row, window)[:, self.order(row)]
        return self._masks[row.seq, window]

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        outs = []
        for row in self.rows:
            k_BKSD, v_BKSD = (x_SKD.transpose(0, 1)[None] for x_SKD in self.cache.stored(layer, row))
            mask = self.mask(row, layer)
            mask_BTS = None if mask is None else mask[None]
            outs.append(attention_grouped(q_NHD[row.rows][None], k_BKSD, v_BKSD, mask_BTS)[0])
        return outs[0] if len(outs) == 1 else torch.cat(outs)
