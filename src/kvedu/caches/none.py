"""No cache: keys and values live for one step and are forgotten.

Every step must bring the whole sequence, so the work of n tokens is that of
1 + 2 + ... + n of them. It is the judge that every cache is compared to, and what
training uses (autograd passes through it).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.dense import DenseView
from kvedu.caches.view import View


class NoCache(Cache):
    """Remembers nothing between steps: ``length`` is always 0."""

    view = DenseView
    any_value_width = True
    exceptions = {
        "keeps every token": "it keeps none; each step must bring the whole sequence",
    }

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._step_kv: dict[int, tuple[View, Tensor, Tensor]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the step's keys and values so far; 0 between steps."""
        return storage_bytes([t for _, k, v in self._step_kv.values() for t in (k, v)])

    def _allocate(self, seq: int, source: int | None) -> None:
        pass

    def _drop(self, seq: int) -> None:
        pass

    def _write(self, view: View, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        self._step_kv[layer] = (view, k_NKD, v_NKD)

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        if layer not in self._step_kv:
            widths = (self.config.D, self.config.Dv)
            k_SKD, v_SKD = (torch.empty(0, self.config.K, n, dtype=self.dtype, device=self.device) for n in widths)
            return k_SKD, v_SKD
        view, k_NKD, v_NKD = self._step_kv[layer]
        rows = next(row.rows for row in view.rows if row.seq == seq)
        return k_NKD[rows], v_NKD[rows]

    def _commit(self, view: View) -> None:
        self._step_kv.clear()

    def _rollback(self, view: View) -> None:
        self._step_kv.clear()

    def _shrink(self, seq: int, length: int) -> None:
        pass

    def _compact(self, seq: int, indices: list[int]) -> None:
        pass
