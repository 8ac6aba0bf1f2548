"""Attention where each KV head holds tokens of its own, with a note of the weights that a policy wants to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kvedu.caches.budgets import Part
from kvedu.caches.evicting_rows import Kept
from kvedu.caches.layout import Row
from kvedu.caches.moments import Moments
from kvedu.caches.scores import ALL
from kvedu.caches.view import View
from kvedu.kernels.attention import attention_reference
from kvedu.kernels.rope import rotate

if TYPE_CHECKING:
    from kvedu.caches.evicting import EvictingCache

BLOCK = 256
"""Queries whose attention weights are in memory at once."""


class EvictingView(View):
    """Attends head by head over tokens of each head's own, and notes the weights that the policy wants to see."""

    def __init__(self, cache: EvictingCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        self.before: dict[tuple[int, Part], Kept] = {}
        """What was held when the step began, should it fail."""
        self.watched: dict[tuple[int, Part], Tensor] = {}
        """Weights ``[Q, S, K]`` of a sequence's new queries; kept by the cache when the step ends well."""
        self.moments: dict[tuple[int, Part], Moments] = {}
        """What the new queries add up to with the earlier ones; likewise."""
        self._back: tuple[Tensor, Tensor] | None = None

    def gather(self, layer: int, seq: int) -> tuple[Tensor, Tensor, Tensor]:
        """As the contract says, but positions are ``[S, K]``: each head holds its own tokens.

        A head that holds fewer than another has zeros at position -1 before its own.
        """
        k_SKD, v_SKD, _ = super().gather(layer, seq)
        return k_SKD, v_SKD, self.cache.positions(seq, layer)[: len(k_SKD)]

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        parts, outs = self.cache.parts_in(layer), []
        for row in self.rows:
            q_TKGD = q_NHD[row.rows].unflatten(1, (self.cache.config.K, -1))
            heads = [self._attend_part(row, part, q_TKGD if part.all else q_TKGD[:, list(part.heads)]) for part in parts]
            if len(heads) == 1:
                out_TKGD = heads[0]
            else:
                order = torch.tensor([head for part in parts for head in part.heads], device=self.cache.device)
                out_TKGD = torch.cat(heads, dim=1)[:, order.argsort()]
            outs.append(out_TKGD.flatten(1, 2))
        return torch.cat(outs)

    def _attend_part(self, row: Row, part: Part, q_TKGD: Tensor) -> Tensor:
        kept, queries, noted, outs = self.cache.kept(row.seq, part), self.cache.queries, [], []
        k_SKD, v_SKD = kept.keys.dense().to(q_TKGD.dtype), kept.values.dense().to(q_TKGD.dtype)
        visible_KTS = self._visible_by_head(row, self.window(part.layer), kept.positions_SK)
        scaled_TKGD = q_TKGD / q_TKGD.shape[-1] ** 0.5
        for start in range(0, row.count, BLOCK):
            block = slice(start, start + BLOCK)
            scores = torch.einsum("tkgd,skd->kgts", scaled_TKGD[block], k_SKD)
            scores.masked_fill_(~visible_KTS[:, None, block], -torch.inf)
            weights = torch.softmax(scores, dim=-1, dtype=torch.float32)
            outs.append(torch.einsum("kgts,skd->tkgd", weights.to(q_TKGD.dtype), v_SKD))
            if queries:
                noted.append(_noted(weights.mean(1).permute(1, 2, 0), queries))
        if row.parents is None:  # what a tree's queries looked at is not known to matter
            if queries:
                new = torch.cat(noted)
                self.watched[row.seq, part] = new.sum(0, keepdim=True) if queries == ALL else new[-queries:].clone()
            if kept.moments is not None:
                self.moments[row.seq, part] = kept.moments.after(self._unturned(row, q_TKGD))
        return torch.cat(outs)

    def _unturned(self, row: Row, q_TKGD: Tensor) -> Tensor:
        """Queries as they were before RoPE: turned back, and freed of the magnitude that some scalings put on them."""
        if self._back is None:
            cos, sin = self._angles(torch.float32)
            size = cos**2 + sin**2
            self._back = cos / size, -sin / size
        cos, sin = (x[row.rows] for x in self._back)
        return rotate(q_TKGD.to(torch.float32).flatten(1, 2), cos, sin).view_as(q_TKGD)

    def attend_reference(self, layer: int, q_NHD: Tensor) -> Tensor:
        """Reference attention, each KV head with its own queries and its own tokens."""
        outs = []
        for row in self.rows:
            k_SKD, v_SKD, positions_SK = self.gather(layer, row.seq)
            visible_KTS, G = self._visible_by_head(row, self.window(layer), positions_SK), q_NHD.shape[1] // k_SKD.shape[1]
            heads = [
                attention_reference(q_NHD[row.rows, h * G : h * G + G], k_SKD[:, h : h + 1], v_SKD[:, h : h + 1], visible_KTS[h])
                for h in range(k_SKD.shape[1])
            ]
            outs.append(torch.cat(heads, dim=1))
        return torch.cat(outs)

    def _visible_by_head(self, row: Row, window: int | None, positions_SK: Tensor) -> Tensor:
        """Boolean ``[K, T, S]``: the contract's rule for tokens that are there, with a window measured from each head's own."""
        seen_TS = self.visible(row, None)
        seen_KTS = seen_TS[None, :, seen_TS.shape[1] - len(positions_SK) :] & (positions_SK.T >= 0)[:, None]
        if not window:
            return seen_KTS
        new_T = torch.tensor(row.new, device=positions_SK.device)
        return seen_KTS & (new_T[None, :, None] - positions_SK.T[:, None, :] < window)


def _noted(weights_TSK: Tensor, queries: int) -> Tensor:
    """Of a block of queries what must outlive it: the sum, or the last ones."""
    return weights_TSK.sum(0, keepdim=True) if queries == ALL else weights_TSK[-queries:]
