"""The loop without a cache beside the loop with one: what the whole book is about, in two functions."""

from __future__ import annotations

from typing import Sequence

import torch

from kvedu.caches.contract import Cache
from kvedu.caches.none import NoCache
from kvedu.model.transformer import Transformer


@torch.inference_mode()
def greedy_uncached(model: Transformer, prompt_ids: Sequence[int], n_new: int) -> list[int]:
    """``n_new`` greedy tokens, every step running the whole sequence again.

    Step t costs a forward pass of P + t tokens: O(n**2) projections in total, O(n**3) score pairs.
    """
    ids = list(prompt_ids)
    cache = NoCache(model.config, dtype=model.dtype, device=model.device)
    seq = cache.add()
    for _ in range(n_new):
        with cache.step({seq: len(ids)}) as view:
            logits_1V = model(torch.tensor(ids, device=model.device), view, view.last_rows)
        ids.append(int(logits_1V.argmax()))
    return ids[len(prompt_ids) :]


@torch.inference_mode()
def greedy_cached(model: Transformer, prompt_ids: Sequence[int], n_new: int, cache: Cache) -> list[int]:
    """The same tokens, every step running only what the cache has not seen: the prompt once, then one token a step."""
    ids, new = list(prompt_ids), list(prompt_ids)
    seq = cache.add()
    for _ in range(n_new):
        with cache.step({seq: len(new)}) as view:
            logits_1V = model(torch.tensor(new, device=model.device), view, view.last_rows)
        new = [int(logits_1V.argmax())]
        ids += new
    cache.free(seq)
    return ids[len(prompt_ids) :]
