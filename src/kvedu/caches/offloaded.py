"""The offloaded cache: keys and values live in host memory or on disk, and visit the device a layer at a time.

Device memory then holds two layers' keys and values of the sequences in a step, whatever the number of layers. The
price is traffic: every step brings all of them in, so a decoded token costs what reading the whole cache over
the bus (or from disk) costs, where a plain cache reads it from the device's own memory.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.host_store import in_memory, on_disk
from kvedu.caches.layout import Row
from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import CacheFull
from kvedu.kernels.attention import attention_grouped

Visitors = list[tuple[Tensor, Tensor]]
"""Keys ``[S, K, D]`` and values ``[S, K, Dv]`` on the device, one pair per row of a step."""


class OffloadedView(View):
    """Brings a layer's keys and values in when it is attended to; on a GPU the next layer's are already on their way."""

    def __init__(self, cache: OffloadedCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        self._here: dict[int, Visitors] = {}
        self._arrived: dict[int, torch.cuda.Event] = {}

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        here = self.visitors(layer)
        if self.cache.ahead:
            self.bring(layer + 1)
        window, outs = self.window(layer), []
        for row, pair in zip(self.rows, here):
            k_BKSD, v_BKSD = (x_SKD.transpose(0, 1)[None] for x_SKD in pair)
            sees_all = row.count == 1 and not window
            causal = row.start == 0 and row.parents is None and not window
            mask = None if sees_all or causal else self.visible(row, window)[None]
            outs.append(attention_grouped(q_NHD[row.rows][None], k_BKSD, v_BKSD, mask, causal=causal)[0])
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    def visitors(self, layer: int) -> Visitors:
        """A layer's keys and values on the device, those that were there for earlier layers sent away."""
        for earlier in [known for known in self._here if known < layer]:
            del self._here[earlier]
        self.bring(layer)
        if layer in self._arrived:
            torch.cuda.current_stream(self.cache.device).wait_event(self._arrived.pop(layer))
        return self._here[layer]

    def bring(self, layer: int) -> None:
        """Start to copy in what a layer has committed; places for its new tokens come after it."""
        if layer in self._here or layer >= self.cache.n_layers:
            return
        with self.cache.copying():  # of tokens that earlier steps have committed: nothing to wait for
            self._here[layer] = [self.cache.visit(layer, row) for row in self.rows]
            if self.cache.side is not None:
                self._arrived[layer] = torch.cuda.Event()
                self._arrived[layer].record(self.cache.side)
        self.cache.note_peak(sum(x.nbytes for pairs in self._here.values() for pair in pairs for x in pair))


class OffloadedCache(Cache):
    """``max_sequences`` places of ``max_length`` tokens in host memory, or in a file in ``folder``.

    The same tokens as any cache that keeps them. ``bytes_in`` and ``bytes_out`` count what was copied to the
    device and away from it: a step of N new tokens after S cached ones moves S and N tokens' bytes. On a GPU
    host memory is pinned and the next layer's copy runs while a layer computes; on a CPU the
    copies are plain, and show what offloading costs where nothing hides it. ``nbytes`` is the host's or the file's
    size; ``peak_device_bytes`` the most that has visited the device at once.

    Raises ``CacheFull`` where a step does not fit, or the disk has no room; ``CacheError`` for a folder that is not there.
    Source: the idea is FlexGen's (Sheng et al. 2023), which plans such moves for weights and activations too.
    """

    view = OffloadedView
    any_value_width = True

    def __init__(
        self, config: ModelConfig, *, max_length: int, max_sequences: int = 1, folder: Path | str | None = None, **kwargs
    ) -> None:
        super().__init__(config, **kwargs)
        if max_sequences < 1 or max_length < 1:
            raise CacheFull(f"an offloaded cache needs room for something; got {max_sequences} places of {max_length} tokens")
        self.max_length, self.max_sequences = max_length, max_sequences
        self.side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.ahead = self.side is not None
        self.bytes_in = self.bytes_out = self.peak_device_bytes = 0
        places, widths = max_sequences * max_length * config.K, (config.D, config.Dv)
        elements = self.n_layers * places * sum(widths)
        flat = in_memory(elements, self.dtype, self.ahead) if folder is None else on_disk(elements, self.dtype, folder)
        parts = flat.split([places * width for _ in range(self.n_layers) for width in widths])
        shape = (max_sequences, max_length, config.K)
        self.k, self.v = ([part.view(*shape, -1) for part in parts[side::2]] for side in (0, 1))
        self._slots: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        return storage_bytes([*self.k, *self.v])

    def room(self, seq: int) -> int:
        return self.max_length - self.length(seq)

    def copying(self):
        """Where copies run: beside the computation on a GPU, in line elsewhere."""
        return nullcontext() if self.side is None else torch.cuda.stream(self.side)

    def note_peak(self, nbytes: int) -> None:
        """What is on the device now."""
        self.peak_device_bytes = max(self.peak_device_bytes, nbytes)

    def visit(self, layer: int, row: Row) -> tuple[Tensor, Tensor]:
        """A row's keys and values on the device: the committed ones copied in, room for its new ones behind."""
        pair = []
        for x in (self.k[layer], self.v[layer]):
            here = torch.empty(row.total, *x.shape[2:], dtype=self.dtype, device=self.device)
            here[: row.start].copy_(x[self._slots[row.seq], : row.start], non_blocking=True)
            self.bytes_in += here[: row.start].nbytes
            if self.side is not None:  # made on the copying stream, used on the computing one
                here.record_stream(torch.cuda.current_stream(self.device))
            pair.append(here)
        return pair[0], pair[1]

    def _allocate(self, seq: int, source: int | None) -> None:
        taken = set(self._slots.values())
        free = next((slot for slot in range(self.max_sequences) if slot not in taken), None)
        if free is None:
            raise CacheFull(f"all {self.max_sequences} places are taken; free a sequence or make the cache wider")
        self._slots[seq] = free
        if source is not None:
            old, length = self._slots[source], len(self._positions[source])
            for x in (*self.k, *self.v):
                x[free, :length] = x[old, :length]

    def _drop(self, seq: int) -> None:
        del self._slots[seq]

    def _reserve(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if row.total > self.max_length:
                raise CacheFull(
                    f"sequence {row.seq} has {row.start} tokens and brings {row.count}; a place holds {self.max_length}. "
                    "Make the cache longer, or stop earlier"
                )

    def _write(self, view: OffloadedView, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        moves = []
        for row, pair in zip(view.rows, view.visitors(layer)):
            for x, here, new in zip((self.k[layer], self.v[layer]), pair, (k_NKD, v_NKD)):
                here[row.start :] = new[row.rows]
                moves.append((x[self._slots[row.seq], row.start : row.total], here[row.start :]))
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream(self.device))
        with self.copying():
            for there, here in moves:
                there.copy_(here, non_blocking=True)
                self.bytes_out += here.nbytes

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        self._wait()
        slot = self._slots[seq]
        return self.k[layer][slot, :length].to(self.device), self.v[layer][slot, :length].to(self.device)

    def _wait(self) -> None:
        """Until everything that was sent out has arrived."""
        if self.side is not None:
            self.side.synchronize()

    def _commit(self, view: View) -> None:
        super()._commit(view)
        self._wait()

    def _shrink(self, seq: int, length: int) -> None:
        """Nothing to do: places beyond a sequence's length are never read."""

    def _compact(self, seq: int, indices: list[int]) -> None:
        slot, index = self._slots[seq], torch.tensor(indices, dtype=torch.long, device="cpu")
        for x in (*self.k, *self.v):
            x[slot, : len(indices)] = x[slot, index]
