"""The cache of a first implementation: one tensor per sequence and layer, grown by concatenation.

Every step allocates S + T rows and copies the S old ones, so n decode steps copy O(n**2)
bytes in total. ``bytes_copied`` counts them; ``StaticCache`` is the repair.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.dense import DenseView
from kvedu.caches.view import View


class ConcatCache(Cache):
    """Keys and values ``[S, K, D]`` of each (sequence, layer), replaced by a longer pair at each append.

    Grows until memory ends. A fork shares its parent's tensors at no cost: they are never
    written in place.
    """

    view = DenseView
    any_value_width = True

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._kv: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.bytes_copied = 0
        """Bytes of old keys and values that appends have copied so far."""

    @property
    def nbytes(self) -> int:
        return storage_bytes([t for pair in self._kv.values() for t in pair])

    def _allocate(self, seq: int, source: int | None) -> None:
        for layer in range(self.n_layers):
            if source is not None:
                self._kv[seq, layer] = self._kv[source, layer]
            else:
                widths = (self.config.D, self.config.Dv)
                k_SKD, v_SKD = (torch.empty(0, self.config.K, n, dtype=self.dtype, device=self.device) for n in widths)
                self._kv[seq, layer] = (k_SKD, v_SKD)

    def _drop(self, seq: int) -> None:
        for layer in range(self.n_layers):
            del self._kv[seq, layer]

    def _write(self, view: View, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        for row in view.rows:
            k_SKD, v_SKD = self._kv[row.seq, layer]
            self.bytes_copied += k_SKD.nbytes + v_SKD.nbytes
            self._kv[row.seq, layer] = (
                torch.cat((k_SKD, k_NKD[row.rows].to(self.dtype))),
                torch.cat((v_SKD, v_NKD[row.rows].to(self.dtype))),
            )

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        k_SKD, v_SKD = self._kv[seq, layer]
        return k_SKD[:length], v_SKD[:length]

    def _shrink(self, seq: int, length: int) -> None:
        for layer in range(self.n_layers):
            k_SKD, v_SKD = self._kv[seq, layer]
            if len(k_SKD) > length:
                self._kv[seq, layer] = (k_SKD[:length].clone(), v_SKD[:length].clone())

    def _compact(self, seq: int, indices: list[int]) -> None:
        index = torch.tensor(indices, dtype=torch.long, device=self.device)
        for layer in range(self.n_layers):
            k_SKD, v_SKD = self._kv[seq, layer]
            self._kv[seq, layer] = (k_SKD[index], v_SKD[index])
