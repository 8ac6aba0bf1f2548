"""The preallocated cache: a fixed number of slots of a fixed length, written in place.

One tensor pair per layer, ``[slots, K, max_length, D]``; a sequence owns a slot and its length.
Nothing is copied as it grows, and what it might need is reserved before it is used: the
waste that paging removes (chapter 4).
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.layout import Row
from kvedu.caches.layouts import Layouts
from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import CacheFull
from kvedu.kernels.attention import attention_grouped
from kvedu.kernels.paged_attention import paged_attention, paged_write, takes


class StaticView(View):
    """Attends over slots in place: no gather, no copy.

    A slot is one long page, so where the paged kernel runs all sequences go in one call. Elsewhere neighbours
    in step share a call.
    """

    def __init__(self, cache: StaticCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        slots, length = cache._slots, cache.max_length
        places = [slots[row.seq] * length + i for row in rows for i in range(row.start, row.total)]
        self.slot_mapping = torch.tensor(places, device=cache.device)  # where each new token goes, counted through all slots
        self.layouts = Layouts(rows, [[slots[row.seq]] for row in rows], cache.device)  # a sequence's table is its slot
        self._masks: dict[tuple[int, int | None], Tensor | None] = {}

    @cached_property
    def runs(self) -> list[list[Row]]:
        """The step split into runs that one call of the PyTorch path serves."""
        return _runs(self.rows, self.cache._slots)

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        k, v = self.cache.k[layer], self.cache.v[layer]
        window = self.window(layer)
        if self.layouts.fits and takes(q_NHD, k):
            return paged_attention(q_NHD, *self.cache.pages[layer], self.layouts(window), window)
        outs = []
        for i, run in enumerate(self.runs):
            first, B, T = run[0], len(run), run[0].count
            slot, S = self.cache._slots[first.seq], max(row.total for row in run)
            causal = T > 1 and S == T and not window and first.parents is None
            mask = None if causal else self._mask(i, window, q_NHD.dtype)
            q_BTHD = q_NHD[first.first : first.first + B * T].unflatten(0, (B, T))
            out = attention_grouped(q_BTHD, k[slot : slot + B, :, :S], v[slot : slot + B, :, :S], mask, causal=causal)
            outs.append(out.flatten(0, 1))
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    def _mask(self, i: int, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """Additive mask ``[B, T, S]`` of a run, made once a step; None where everything is visible."""
        if (i, window) not in self._masks:
            run = self.runs[i]
            S = max(row.total for row in run)
            if not window and run[0].count == 1 and all(row.total == S for row in run):
                self._masks[i, window] = None
            else:
                hidden = torch.full((len(run), run[0].count, S), -torch.inf, dtype=dtype)
                for b, row in enumerate(run):
                    if row.count == 1 and not window:
                        hidden[b, 0, : row.total] = 0
                    else:
                        hidden[b, :, : row.total].masked_fill_(row.visible(window), 0)
                self._masks[i, window] = hidden.to(self.cache.device)
        return self._masks[i, window]


def _runs(rows: tuple[Row, ...], slot: dict[int, int]) -> list[list[Row]]:
    """Split a step into runs of sequences in consecutive slots that one attention call can serve.

    All bring the same number of tokens; longer chunks go alone, since their padded masks would
    cost more than the calls they save.
    """
    runs: list[list[Row]] = []
    for row in rows:
        last = runs[-1][-1] if runs else None
        if last is not None and last.count == row.count == 1 and slot[row.seq] == slot[last.seq] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


class StaticCache(Cache):
    """``max_sequences`` slots of ``max_length`` tokens, allocated at once.

    A sequence of P prompt tokens that is to yield N new ones needs P + N - 1 places: the last
    token sampled is never fed back. A step that does not fit raises ``CacheFull`` and writes nothing.
    """

    view = StaticView

    def __init__(self, config: ModelConfig, *, max_sequences: int = 1, max_length: int, **kwargs) -> None:
        super().__init__(config, **kwargs)
        if max_sequences < 1 or max_length < 1:
            raise CacheFull(f"a static cache needs room for something; got {max_sequences} slots of {max_length} tokens")
        self.max_sequences, self.max_length = max_sequences, max_length
        shape = (max_sequences, config.K, max_length, config.D)
        self.k, self.v = (
            [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(self.n_layers)] for _ in "kv"
        )
        self.pages = [(k.transpose(1, 2), v.transpose(1, 2)) for k, v in zip(self.k, self.v)]  # [slots, length, K, D]
        self._slots: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        return storage_bytes([*self.k, *self.v])

    def room(self, seq: int) -> int:
        return self.max_length - self.length(seq)

    def _allocate(self, seq: int, source: int | None) -> None:
        taken = set(self._slots.values())
        free = next((slot for slot in range(self.max_sequences) if slot not in taken), None)
        if free is None:
            raise CacheFull(f"all {self.max_sequences} slots are taken; free a sequence or make the cache wider")
        self._slots[seq] = free
        if source is not None:
            old, length = self._slots[source], len(self._positions[source])
            for x in (*self.k, *self.v):
                x[free, :, :length] = x[old, :, :length]

    def _drop(self, seq: int) -> None:
        self._shrink(seq, 0)
        del self._slots[seq]

    def _reserve(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if row.total > self.max_length:
                raise CacheFull(
                    f"sequence {row.seq} has {row.start} tokens and brings {row.count}; a slot holds {self.max_length}. "
                    "Make the cache longer, or stop earlier"
                )

    def _write(self, view: StaticView, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        paged_write(k_NKD, v_NKD, *self.pages[layer], view.slot_mapping)

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        slot = self._slots[seq]
        return self.k[layer][slot, :, :length].transpose(0, 1), self.v[layer][slot, :, :length].transpose(0, 1)

    def _shrink(self, seq: int, length: int) -> None:
        """Clear what is forgotten: neighbours of other lengths read it as masked padding, where a NaN would spread."""
        slot = self._slots[seq]
        for x in (*self.k, *self.v):
            x[slot, :, length:] = 0

    def _compact(self, seq: int, indices: list[int]) -> None:
        slot, index = self._slots[seq], torch.tensor(indices, dtype=torch.long, device=self.device)
        for x_KSD in (x[slot] for x in (*self.k, *self.v)):
            x_KSD[:, : len(indices)] = x_KSD[:, index]
            x_KSD[:, len(indices) :] = 0
