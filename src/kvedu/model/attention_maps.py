"""Who looks at whom: the attention weights of every layer and head in one forward pass over a text."""

from __future__ import annotations

from typing import Callable, Sequence

import torch
from torch import Tensor

from kvedu.caches.concat import ConcatCache
from kvedu.caches.dense import DenseView
from kvedu.caches.layout import Row
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer


class AttentiveView(DenseView):
    """Attends as any dense view, and hands each layer's weights ``[H, T, S]`` to the cache's ``noted``."""

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        for row in self.rows:
            self.cache.noted(layer, self._weights(layer, row, q_NHD[row.rows]))
        return super().attend(layer, q_NHD)

    def _weights(self, layer: int, row: Row, q_THD: Tensor) -> Tensor:
        k_SKD, _, _ = self.gather(layer, row.seq)
        q_TKGD = q_THD.to(torch.float32).unflatten(1, (k_SKD.shape[1], -1)) / q_THD.shape[-1] ** 0.5
        scores = torch.einsum("tkgd,skd->kgts", q_TKGD, k_SKD.to(torch.float32))
        return scores.masked_fill_(~self.visible(row, self.window(layer)), -torch.inf).softmax(-1).flatten(0, 1)


class AttentiveCache(ConcatCache):
    """A cache that calls ``noted(layer, weights_HTS)`` for each sequence and layer of a step, in order."""

    view = AttentiveView
    noted: Callable[[int, Tensor], object]

    def __init__(self, *args, noted: Callable[[int, Tensor], object], **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.noted = noted


def whole(weights_HTS: Tensor) -> Tensor:
    """Keep all of it: 4 H T S bytes a layer."""
    return weights_HTS


@torch.inference_mode()
def attention_maps(model: Transformer, ids: Sequence[int], keep: Callable[[Tensor], Tensor] = whole) -> Tensor:
    """Attention weights of a text from its beginning: ``[L, H, T, T]`` in fp32, or what ``keep`` makes of each layer's.

    Row t of a map says how token t's query spreads over tokens 0 .. t; it sums to 1. The whole of them takes 4 L H T**2
    bytes, which is why ``keep(weights_HTS)`` may return something smaller. Cost: a forward pass, and
    the scores once more. Raises ``RequestError`` for an empty text.
    """
    if not len(ids):
        raise RequestError("a text of no tokens has no attention; give at least one id")
    kept: list[Tensor] = []
    cache = AttentiveCache(
        model.config, dtype=model.dtype, device=model.device, noted=lambda layer, weights_HTS: kept.append(keep(weights_HTS))
    )
    with cache.step({cache.add(): len(ids)}) as view:
        model.hidden(torch.tensor(ids, device=model.device), view)
    return torch.stack(kept)


def weight_back(weights_HTS: Tensor, back: int, start: int) -> Tensor:
    """How much each head looks ``back`` tokens back, mean over the queries from ``start`` on: ``[..., H]``.

    ``back`` 1 finds the heads that look at the token before. On a text that repeats itself after P tokens, ``back`` P finds
    those that look at the same token before, and P - 1, from ``start`` P on, the *induction heads*, which
    look at what came after it (Olsson et al. 2022). Raises ``RequestError`` where ``start`` leaves a query without a
    token to look back at, or no query at all.
    """
    T = weights_HTS.shape[-1]
    if weights_HTS.shape[-2] != T or not 0 <= back <= start < T:
        raise RequestError(
            f"maps of shape {tuple(weights_HTS.shape[-2:])}, {back} tokens back from query {start} on: want square maps and "
            "0 <= back <= start < T, so that each query has a token there"
        )
    t = torch.arange(start, T, device=weights_HTS.device)
    return weights_HTS[..., t, t - back].mean(-1)
