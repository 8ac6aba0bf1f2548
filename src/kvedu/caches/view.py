"""The view of a cache: one forward pass over it, which the model is handed instead of a global."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kvedu.caches.layout import Row
from kvedu.errors import CacheError
from kvedu.kernels.attention import attention_reference
from kvedu.kernels.rope import cos_sin, rotate, rotate_pair, rotates_pair
from kvedu.kernels.transfer import move, put

if TYPE_CHECKING:
    from kvedu.caches.contract import Cache


class View:
    """One forward pass over a cache.

    All tensors are ragged: N rows, the new tokens of all sequences of the step one after the other.
    """

    def __init__(self, cache: Cache, rows: tuple[Row, ...]) -> None:
        self.cache, self.rows = cache, rows
        self.appended: set[int] = set()
        self._turn: tuple[Tensor, Tensor] | None = None
        self._visible: dict[tuple[int, int | None], Tensor] = {}

    @cached_property
    def positions(self) -> Tensor:
        """Positions of the new tokens, int64 ``[N]``."""
        return put([p for row in self.rows for p in row.new], self.cache.device)

    @property
    def last_rows(self) -> Tensor:
        """Index ``[B]`` of each sequence's last new token: the rows whose logits choose its next token."""
        return put([row.first + row.count - 1 for row in self.rows], self.cache.device)

    def rotate(self, q_NHD: Tensor, k_NKD: Tensor) -> tuple[Tensor, Tensor]:
        """Turn new queries and keys to their positions (``kernels/rope``); the angles are computed once a step."""
        if rotates_pair(q_NHD, k_NKD):
            return rotate_pair(q_NHD, k_NKD, *self.turn(torch.float32))
        turn = self.turn(q_NHD.dtype)
        return rotate(q_NHD, *turn), rotate(k_NKD, *turn)

    def turn(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """``cos_sin`` of the new tokens' positions."""
        if self._turn is None or self._turn[0].dtype != dtype:
            self._turn = self._angles(dtype)
        return self._turn

    def _angles(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        rope = self.cache.config.rope
        if rope.switch_length is None:
            return cos_sin(rope, self.positions, dtype)
        parts = [cos_sin(rope, self.positions[row.rows], dtype, row.end_position) for row in self.rows]
        return torch.cat([cos for cos, _ in parts]), torch.cat([sin for _, sin in parts])

    def append(self, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        """Take in the new tokens' keys (rotated) and values of one layer; each layer exactly once a step."""
        self._enter(layer, len(k_NKD), len(v_NKD))
        self.cache._write(self, layer, k_NKD, v_NKD)

    def _enter(self, layer: int, n_k: int, n_v: int) -> None:
        """Note that a layer comes; refuse one that is not there, came already, or brings another number of tokens."""
        if not 0 <= layer < self.cache.n_layers:
            raise CacheError(f"layer {layer} does not exist; this cache has layers 0 .. {self.cache.n_layers - 1}")
        if layer in self.appended:
            raise CacheError(f"layer {layer} was already appended in this step")
        if n_k != len(self.positions) or n_v != len(self.positions):
            raise CacheError(f"the step has {len(self.positions)} tokens; got {n_k} keys, {n_v} values")
        self.appended.add(layer)

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        """Attention of the new queries over everything they may see: ``[N, H, Dv]``. A layout's own kernel goes here."""
        return self.attend_reference(layer, q_NHD)

    def meet(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
        """``rotate``, ``append`` and ``attend`` at once: what a layer wants of a cache. A layout that can do it in fewer passes does."""
        q_NHD, k_NKD = self.rotate(q_NHD, k_NKD)
        self.append(layer, k_NKD, v_NKD)
        return self.attend(layer, q_NHD)

    def attend_reference(self, layer: int, q_NHD: Tensor) -> Tensor:
        """The law's own side: reference attention over ``gather``, sequence by sequence.

        Only a view that rotates or chooses per head when it attends says anew what is meant.
        """
        outs = []
        for row in self.rows:
            k_SKD, v_SKD, _ = self.gather(layer, row.seq)
            outs.append(attention_reference(q_NHD[row.rows], k_SKD, v_SKD, self.visible(row, self.window(layer))))
        return torch.cat(outs)

    def window(self, layer: int) -> int | None:
        """Sliding window of a layer, in keys; None where every earlier token is seen."""
        return self.cache.config.window(self.cache.model_layers[layer])

    def visible(self, row: Row, window: int | None) -> Tensor:
        """Boolean ``[T, S]`` of a row (see ``Row.visible``), made once a step and on the cache's device."""
        if (row.seq, window) not in self._visible:
            self._visible[row.seq, window] = move(row.visible(window), self.cache.device)
        return self._visible[row.seq, window]

    def gather(self, layer: int, seq: int) -> tuple[Tensor, Tensor, Tensor]:
        """Dense keys ``[S, K, D]``, values ``[S, K, Dv]`` and positions ``[S]`` of one sequence of the step.

        The new tokens are included once the layer was appended.
        """
        row = next((row for row in self.rows if row.seq == seq), None)
        if row is None:
            raise CacheError(f"sequence {seq} is not in this step; it has {[row.seq for row in self.rows]}")
        length = row.total if layer in self.appended else row.start
        return *self.cache._read(layer, seq, length), put(row.positions[:length], self.cache.device)
