"""A step as the paged kernel reads it: made once for all layers, or once for each window where there are trees."""

from __future__ import annotations

from typing import Sequence

import torch

from kvedu.caches.layout import Row
from kvedu.kernels.paged_attention import PagedLayout


class Layouts:
    """The layouts of one step over block tables, one for each sequence of ``rows``; ``fits`` says whether the kernel can read it."""

    def __init__(
        self, rows: tuple[Row, ...], tables: Sequence[Sequence[int]], device: torch.device | str = "cpu"
    ) -> None:
        self.rows, self.tables, self.device = rows, tables, device
        self.trees = [row.parents for row in rows] if any(row.parents is not None for row in rows) else []
        self.fits = all(row.gapless for row in rows)
        self._made: dict[int | None, PagedLayout] = {}

    def __call__(self, window: int | None) -> PagedLayout:
        """For layers of this window; only a tree's bits depend on it."""
        window = window if self.trees else None
        if window not in self._made:
            rows = [(row.first, row.count, row.start) for row in self.rows]
            self._made[window] = PagedLayout.of(self.tables, rows, self.trees, window, self.device)
        return self._made[window]
