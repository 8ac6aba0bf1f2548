"""Attention where each KV head holds tokens of its own, with a note of the weights that a policy wants to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kvedu.caches.contract import View
from kvedu.caches.layout import Row
from kvedu.caches.scores import ALL
from kvedu.kernels.attention import attention_reference

if TYPE_CHECKING:
    from kvedu.caches.evicting import EvictingCache

BLOCK = 256
"""Queries whose attention weights are in memory at once."""


class EvictingView(View):
    """Attends head by head over tokens of each head's own, and notes the weights that the policy wants to see."""

    def __init__(self, cache: EvictingCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        self.watched: dict[tuple[int, int], Tensor] = {}
        """Weights ``[Q, S, K]`` of a (sequence, layer)'s new queries; kept by the cache when the step ends well."""

    def gather(self, layer: int, seq: int) -> tuple[Tensor, Tensor, Tensor]:
        """As the contract says, but positions are ``[S, K]``: each head holds its own tokens."""
        k_SKD, v_SKD, _ = super().gather(layer, seq)
        return k_SKD, v_SKD, self.cache._held[seq, layer].positions_SK[: len(k_SKD)]

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        queries, outs = self.cache.queries, []
        for row in self.rows:
            k_SKD, v_SKD, positions_SK = self.gather(layer, row.seq)
            visible_KTS = self._visible_by_head(row, self.window(layer), positions_SK)
            k_SKD, v_SKD = k_SKD.to(q_NHD.dtype), v_SKD.to(q_NHD.dtype)
            q_TKGD = q_NHD[row.rows].unflatten(1, (k_SKD.shape[1], -1)) / q_NHD.shape[-1] ** 0.5
            noted: list[Tensor] = []
            for start in range(0, row.count, BLOCK):
                block = slice(start, start + BLOCK)
                scores = torch.einsum("tkgd,skd->kgts", q_TKGD[block], k_SKD)
                scores.masked_fill_(~visible_KTS[:, None, block], -torch.inf)
                weights = torch.softmax(scores, dim=-1, dtype=torch.float32)
                outs.append(torch.einsum("kgts,skd->tkgd", weights.to(q_NHD.dtype), v_SKD).flatten(1, 2))
                if queries:
                    noted.append(_noted(weights.mean(1).permute(1, 2, 0), queries))
            if queries and row.parents is None:  # what a tree's queries looked at is not known to matter
                new = torch.cat(noted)
                self.watched[row.seq, layer] = new.sum(0, keepdim=True) if queries == ALL else new[-queries:].clone()
        return torch.cat(outs)

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
        """Boolean ``[K, T, S]``: the contract's rule, with a window measured from each head's own tokens."""
        seen_KTS = self.visible(row, None)[None].expand(positions_SK.shape[1], -1, -1)
        if not window:
            return seen_KTS
        new_T = torch.tensor(row.new, device=positions_SK.device)
        return seen_KTS & (new_T[None, :, None] - positions_SK.T[:, None, :] < window)


def _noted(weights_TSK: Tensor, queries: int) -> Tensor:
    """Of a block of queries what must outlive it: the sum, or the last ones."""
    return weights_TSK.sum(0, keepdim=True) if queries == ALL else weights_TSK[-queries:]
