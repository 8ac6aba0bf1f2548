"""The paged cache: keys and values in fixed-size pages, found through a block table per sequence.

One tensor pair per layer, ``[P, C, K, D]``: P pages of C tokens. A sequence takes a page when its
first token comes and gives it back at once when it ends, so it never holds more than C - 1 unused
places; pages can be shared, and are copied when one of the sharers writes (Kwon et al. 2023).
"""

from __future__ import annotations

from functools import cached_property
from typing import Hashable, Mapping, Sequence

import torch
from torch import Tensor

from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.block_tables import BlockTables
from kvedu.caches.blocks import BlockPool, Reuse
from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.layout import Row
from kvedu.caches.layouts import Layouts
from kvedu.caches.swap import SwapSpace
from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import CacheError, CacheFull
from kvedu.kernels.attention import attention_grouped
from kvedu.kernels.paged_attention import paged_attention, paged_write, takes
from kvedu.kernels.rope_write import rope_write
from kvedu.kernels.transfer import put


class PagedView(View):
    """Attends over pages where they lie, all sequences in one call (``kernels/paged_attention``), where that kernel runs.

    Elsewhere, and for sequences with gaps, a sequence at a time: in place where its pages lie side by
    side, over a copy of its own pages where not.
    """

    def __init__(self, cache: PagedCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        self.layouts = Layouts(rows, [cache.tables.tables[row.seq] for row in rows], cache.device)

    @cached_property
    def slot_mapping(self) -> Tensor:
        """Where each new token goes, int64 ``[N]``: ``page * C + offset``."""
        slots = [slot for row in self.rows for slot in self.cache.tables.slots(row.seq, row.start, row.total)]
        return put(slots, self.cache.device)

    @cached_property
    def pages(self) -> list[int | Tensor]:
        """Where each sequence lies (see ``PagedCache._pages``)."""
        return [self.cache._pages(row.seq, row.total) for row in self.rows]

    def meet(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
        """Rotated keys go straight to their pages (``kernels/rope_write``), unless a subclass has a way of its own."""
        if (type(self).rotate, type(self).append) != (View.rotate, View.append):
            return View.meet(self, layer, q_NHD, k_NKD, v_NKD)
        self._enter(layer, len(k_NKD), len(v_NKD))
        pages = self.cache.k[layer], self.cache.v[layer]
        return self.attend(layer, rope_write(q_NHD, k_NKD, v_NKD, *self.turn(torch.float32), *pages, self.slot_mapping))

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        window, k_PCKD, v_PCKD = self.window(layer), self.cache.k[layer], self.cache.v[layer]
        if self.layouts.fits and k_PCKD.shape == v_PCKD.shape and takes(q_NHD, k_PCKD):
            return paged_attention(q_NHD, k_PCKD, v_PCKD, self.layouts(window), window)
        outs = []
        for row, pages in zip(self.rows, self.pages):
            k_BKSD, v_BKSD = (
                self.cache._dense(x, pages, row.total).transpose(0, 1)[None] for x in (k_PCKD, v_PCKD)
            )
            sees_all = row.count == 1 and not window
            causal = row.start == 0 and row.parents is None and not window
            mask = None if sees_all or causal else self.visible(row, window)[None]
            outs.append(attention_grouped(q_NHD[row.rows][None], k_BKSD, v_BKSD, mask, causal=causal)[0])
        return outs[0] if len(outs) == 1 else torch.cat(outs)


class PagedCache(Cache):
    """``n_pages`` pages of ``page_size`` tokens, shared by any number of sequences.

    ``reuse`` (``HashReuse``, ``RadixReuse``; None for no reuse) remembers the pages of finished prefixes:
    ``add_prefix`` starts a sequence from them, ``remember`` offers a sequence's full pages. With ``spare`` there is one
    page more, ``spare_page``, that no sequence ever holds: rows that only fill a recorded step up write there.
    """

    view = PagedView
    undo: int | None = None
    """Tokens of a chain that can be taken back, as rejected guesses are; None: any number."""

    def __init__(
        self, config: ModelConfig, *, n_pages: int, page_size: int = 16, reuse: Reuse | None = None, spare: bool = False, **kwargs
    ) -> None:
        super().__init__(config, **kwargs)
        self.tables = BlockTables(BlockPool(n_pages, page_size, reuse))
        self.spare_page = n_pages if spare else None
        self._make_pages()

    def _make_pages(self) -> None:
        """Memory for all pages."""
        self.k, self.v = self._zeros(), self._zeros()

    def _zeros(self) -> list[Tensor]:
        """A tensor of pages for each layer."""
        shape = (self.n_blocks + (self.spare_page is not None), self.page_size, self.config.K, self.config.D)
        return [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(self.n_layers)]

    @staticmethod
    def pages_within(config: ModelConfig, budget_bytes: int, page_size: int = 16, dtype: torch.dtype = torch.float32) -> int:
        """Pages that a budget pays for. Raises ``CacheFull`` if it does not pay for one."""
        page_bytes = page_size * kv_bytes_per_token(config, dtype.itemsize)
        if budget_bytes < page_bytes:
            raise CacheFull(f"{budget_bytes} bytes do not pay for one page of {page_size} tokens, {page_bytes} bytes")
        return budget_bytes // page_bytes

    @property
    def page_size(self) -> int:
        """Tokens per page (C)."""
        return self.tables.pool.block_size

    @property
    def nbytes(self) -> int:
        return storage_bytes(self.page_tensors)

    @property
    def n_blocks(self) -> int:
        """All pages there are."""
        return self.tables.pool.n_blocks

    @property
    def available(self) -> int:
        """Pages that can be taken now: free ones, and remembered ones that nobody uses."""
        return self.tables.pool.available

    def blocks_for(self, tokens: int) -> int:
        """Pages of a sequence of this many tokens."""
        return self.tables.blocks_for(tokens)

    def blocks_needed(self, growth: Mapping[int, int]) -> int:
        """Pages that a step with these numbers of new tokens would take, copies on write included."""
        return self.tables.needed({seq: (self.length(seq), new) for seq, new in growth.items()})

    def matched(self, tokens: Sequence[int], salt: Hashable = None) -> int:
        """Tokens that ``add_prefix`` would reuse."""
        return self.tables.matched(tokens, salt)

    @property
    def page_tensors(self) -> list[Tensor]:
        """Tensors whose first axis counts pages: all that a page holds."""
        return [*self.k, *self.v]

    def swap_space(self, budget_bytes: int) -> SwapSpace:
        """Host memory that sequences of this cache can be copied out to."""
        return SwapSpace(self, budget_bytes)

    def positions(self, seq: int) -> Sequence[int]:
        """Positions of a sequence's tokens."""
        self._known(seq, None)
        return self._positions[seq]

    def close_table(self, seq: int) -> Sequence[int]:
        """Forget a sequence whose blocks were given back already; its positions. For ``SwapSpace``."""
        self._idle("close_table")
        return self._positions.pop(seq)

    def open_table(self, positions: Sequence[int]) -> int:
        """A new sequence at these positions, whose table is still to be made. For ``SwapSpace``."""
        self._idle("open_table")
        seq, self._next_id = self._next_id, self._next_id + 1
        self._positions[seq] = list(positions)
        return seq

    def add_prefix(self, tokens: Sequence[int], salt: Hashable = None) -> tuple[int, int]:
        """Open a sequence that starts with what is remembered of ``tokens``: (its id, tokens reused).

        Reused tokens are whole pages, never all of them: the last token is always left to compute.
        """
        seq = self.open_table(())
        reused = self.tables.open_prefix(seq, tokens, salt)
        self._positions[seq] = list(range(reused))
        return seq, reused

    def remember(self, seq: int, tokens: Sequence[int], salt: Hashable = None) -> None:
        """Offer the full pages of a sequence for reuse; ``tokens`` are the ids that they hold, verified ones only."""
        self._known(seq, "remember")
        positions = self._positions[seq]
        if len(tokens) > len(positions) or (positions and positions[len(tokens) - 1] != len(tokens) - 1):
            raise CacheError(
                f"sequence {seq} holds {len(positions)} tokens at positions up to {positions[-1:]}; "
                f"cannot remember them as the plain prefix of {len(tokens)} tokens"
            )
        self.tables.remember(seq, tokens, salt)

    def room(self, seq: int) -> int:
        """Tokens that fit into its last page and all pages that can be had now."""
        held = len(self.tables.tables[seq]) * self.page_size - self.length(seq)
        return held + self.tables.pool.available * self.page_size

    def _allocate(self, seq: int, source: int | None) -> None:
        self.tables.open(seq, source)

    def _drop(self, seq: int) -> None:
        self.tables.close(seq)

    def _reserve(self, rows: tuple[Row, ...]) -> None:
        copies = self.tables.reserve({row.seq: (row.start, row.count) for row in rows})
        self._copy(copies)

    def _copy(self, copies: Sequence[tuple[int, int]]) -> None:
        if copies:
            old, new = (put(ids, self.device) for ids in zip(*copies))
            for x in self.page_tensors:
                x[new] = x[old]

    def _write(self, view: PagedView, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        paged_write(k_NKD, v_NKD, self.k[layer], self.v[layer], view.slot_mapping)

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        pages = self._pages(seq, length)
        return self._dense(self.k[layer], pages, length), self._dense(self.v[layer], pages, length)

    def _pages(self, seq: int, length: int) -> int | Tensor:
        """Where a sequence's first ``length`` tokens lie: the first page of a run side by side, or an index of pages."""
        table = self.tables.tables[seq][: self.tables.blocks_for(length)]
        if table == list(range(table[0], table[0] + len(table))) if table else True:
            return table[0] if table else 0
        return put(table, self.device)

    def _dense(self, x_PCKD: Tensor, pages: int | Tensor, length: int) -> Tensor:
        """A sequence's rows ``[S, K, D]``: a view of the pool, or a copy of its pages."""
        if isinstance(pages, int):
            return x_PCKD.flatten(0, 1)[pages * self.page_size :][:length]
        return x_PCKD.index_select(0, pages).flatten(0, 1)[:length]

    def _shrink(self, seq: int, length: int) -> None:
        self.tables.shrink(seq, length)

    def _compact(self, seq: int, indices: list[int]) -> None:
        start = next((i for i, index in enumerate(indices) if i != index), len(indices))
        places = [slot for i in indices[start:] for slot in self.tables.slots(seq, i, i + 1)]
        old = put(places, self.device)
        moved = [(k.flatten(0, 1)[old], v.flatten(0, 1)[old]) for k, v in zip(self.k, self.v) if places]
        self.tables.shrink(seq, start)
        if places:
            self._copy(self.tables.reserve({seq: (start, len(places))}))
            slots = put(self.tables.slots(seq, start, len(indices)), self.device)
            for layer, pair in enumerate(moved):
                paged_write(*pair, self.k[layer], self.v[layer], slots)
