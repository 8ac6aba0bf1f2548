"""Perplexity of a model on a text, by a sliding window: what a rewrite costs in prediction."""

from __future__ import annotations

import math
from typing import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from kvedu.caches.none import NoCache
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer


@torch.inference_mode()
def token_losses(model: Transformer, ids: Sequence[int], window: int = 512, stride: int = 256) -> Tensor:
    """Negative log-likelihood, in nats, of each token but the first: fp32 ``[len(ids) - 1]``.

    A window of ``window`` tokens slides over the text by ``stride``; each token is scored once, in the first
    window that holds it. So the first window's tokens see what stands before them, later ones at least
    ``window - stride`` tokens and at most ``window - 1``. A smaller stride gives more context and costs more:
    about len(ids) window / stride tokens of forward pass.

    Raises ``RequestError`` for fewer than two tokens, ids outside the vocabulary, or a stride that skips tokens.
    """
    if len(ids) < 2:
        raise RequestError(f"a text of {len(ids)} tokens predicts nothing; give at least 2")
    if not 1 <= stride < window:
        raise RequestError(f"stride must be at least 1 and less than the window, not {stride} with a window of {window}")
    ids_N = torch.tensor(ids, device=model.device)
    if ids_N.min() < 0 or ids_N.max() >= model.config.V:
        raise RequestError(f"ids must lie in 0 .. {model.config.V - 1}; these reach from {ids_N.min()} to {ids_N.max()}")
    losses, scored, start = [], 1, 0
    cache = NoCache(model.config, dtype=model.dtype, device=model.device)
    seq = cache.add()
    while scored < len(ids):
        end = min(start + window, len(ids))
        with cache.step({seq: end - start}) as view:
            rows = torch.arange(scored - 1 - start, end - 1 - start, device=model.device)
            logits_RV = model(ids_N[start:end], view, rows)
        losses.append(cross_entropy(logits_RV.to(torch.float32), ids_N[scored:end], reduction="none"))
        scored, start = end, start + stride
    return torch.cat(losses)


def perplexity(model: Transformer, ids: Sequence[int], window: int = 512, stride: int = 256) -> float:
    """exp of the mean loss: how many equally likely tokens the model is as unsure as choosing from.

    Arguments, cost and errors as in ``token_losses``. Numbers compare only between the same ids, window and stride.
    """
    return math.exp(token_losses(model, ids, window, stride).mean(dtype=torch.float64).item())
