"""Sinks and a window with positions inside the cache (StreamingLLM): a text without end at distances a model knows.

Keys are stored as projected and rotated when they are attended to, by their place in the cache and
not in the text. Between tokens of the window nothing changes by that: distances are what they
were. A sink, however, stays sinks + window - 1 places back at most, however long the text.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kvedu.caches.layout import Row
from kvedu.caches.window import WindowCache
from kvedu.caches.window_view import WindowView
from kvedu.config import ModelConfig
from kvedu.errors import CacheError
from kvedu.kernels.attention import attention_reference
from kvedu.kernels.rope import cos_sin, rotate, rotate_reference

Table = tuple[Tensor, Tensor]


class Turns(NamedTuple):
    """cos and sin of the keys' places, and of the queries' as seen from the window and from the sinks; which keys are sinks."""

    keys: Table
    near: Table
    far: Table
    sinks: Tensor


class StreamingView(WindowView):
    """Rotates when it attends. Scores of sinks and of the window are made apart, and share one softmax."""

    def __init__(self, cache: StreamingCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        self._tables: dict[int, Turns] = {}

    def rotate(self, q_NHD: Tensor, k_NKD: Tensor) -> tuple[Tensor, Tensor]:
        """Nothing yet: keys are stored plain."""
        return q_NHD, k_NKD

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        outs = []
        for row in self.rows:
            k_SKD, v_SKD = self.cache.stored(layer, row)
            turns, mask = self._turns(row, q_NHD.dtype), self.mask(row, layer)
            k_SKD, q_THD = rotate(k_SKD.to(q_NHD.dtype), *turns.keys), q_NHD[row.rows]
            scores_KGTS = _scores(rotate(q_THD, *turns.near), k_SKD)
            if len(turns.sinks):
                scores_KGTS[..., turns.sinks] = _scores(rotate(q_THD, *turns.far), k_SKD[turns.sinks])
            if mask is not None:
                scores_KGTS.masked_fill_(~mask, -torch.inf)
            weights = torch.softmax(scores_KGTS, dim=-1, dtype=torch.float32).to(q_NHD.dtype)
            outs.append(torch.einsum("kgts,skd->tkgd", weights, v_SKD.to(q_NHD.dtype)).flatten(1, 2))
        return torch.cat(outs)

    def attend_reference(self, layer: int, q_NHD: Tensor) -> Tensor:
        """One query at a time: number what it sees 0, 1, 2 …, rotate by these numbers, attend. Slow and plain."""
        rope, outs = self.cache.config.rope, []
        for row in self.rows:
            k_SKD, v_SKD, positions_S = self.gather(layer, row.seq)
            in_cache_TS, seen_TS = self.visible(row, self.cache.window), self.visible(row, self.window(layer))
            for t, q_HD in enumerate(q_NHD[row.rows]):
                held = in_cache_TS[t].nonzero()[:, 0]  # ascending in the text; the query itself is the last
                places = torch.arange(len(held), device="cpu")
                k = rotate_reference(k_SKD[held], places, rope)
                q = rotate_reference(q_HD[None], places[-1:], rope)
                outs.append(attention_reference(q, k, v_SKD[held], seen_TS[t, held][None]))
        return torch.cat(outs)

    def _turns(self, row: Row, dtype: torch.dtype) -> Turns:
        """Tables of a row, made once a step; places stay small, so that angles are exact however long the text is."""
        if row.seq not in self._tables:
            sinks, rope = self.cache.sinks, self.cache.config.rope
            positions = torch.tensor(row.positions, device=self.cache.device)
            after = [p for p in row.positions if p >= sinks]
            base = after[0] - sinks if after else 0
            lying, new = positions[self.order(row)], positions[row.start :]
            places = torch.where(lying < sinks, lying, lying - base), new - base, new.clamp(max=sinks + self.cache.window - 1)
            tables = (cos_sin(rope, place, dtype) for place in places)
            self._tables[row.seq] = Turns(*tables, (lying < sinks).nonzero()[:, 0])
        return self._tables[row.seq]


def _scores(q_THD: Tensor, k_SKD: Tensor) -> Tensor:
    """q k / sqrt(D) of grouped heads: ``[K, G, T, S]``."""
    q_TKGD = q_THD.unflatten(1, (k_SKD.shape[1], -1)) / q_THD.shape[-1] ** 0.5
    return torch.einsum("tkgd,skd->kgts", q_TKGD, k_SKD)


class StreamingCache(WindowCache):
    """``sinks`` first and ``window`` last tokens, at positions inside the cache (StreamingLLM).

    What a token sees, and at which distances, does not depend on how the text was cut into steps: each
    query sees the cache as it would be if tokens had come one by one. Sinks keep a model
    stable beyond its training length; what has left the window is forgotten all the same.
    Cost: a step rotates all held keys, O(sinks + window) a layer, and makes T S scores.
    Source: Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks; 4 sinks are their advice.

    Raises ``CacheError`` where sinks + window is more than the positions at which the model's RoPE
    changes its frequencies.
    """

    view = StreamingView
    pre_rope = True

    def __init__(self, config: ModelConfig, *, window: int, sinks: int = 4, **kwargs) -> None:
        super().__init__(config, window=window, sinks=sinks, **kwargs)
        switch = config.rope.switch_length
        if switch is not None and sinks + window > switch:
            raise CacheError(
                f"{sinks} sinks and a window of {window} are more than {switch} positions, where the {config.rope.kind} RoPE "
                f"changes its frequencies; keep them at {switch} or less together"
            )

    def _check_switch(self, rows: tuple[Row, ...]) -> None:
        """Places never pass sinks + window, so frequencies never change."""
