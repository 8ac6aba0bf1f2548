"""Self-speculation: the target's own first layers as its draft. No second model, no training."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer


def first_layers(model: Transformer, n: int) -> Transformer:
    """A model of the first ``n`` layers, with the embedding, final norm and head of ``model`` itself.

    Every weight is shared, none is copied; packed weights stay packed. Run with a cache of its own (n / L of the
    target's bytes). Early exit as a draft: Zhang et al. 2023, "Draft & Verify" (2309.08168); LayerSkip (2404.16710),
    whose models are trained for it: an untrained one's early layers are seldom accepted.

    Raises ``RequestError`` if n is not between 1 and L - 1.
    """
    config = model.config
    if not 1 <= n < config.L:
        raise RequestError(f"the draft takes the first n of {config.L} layers, 1 <= n < {config.L}; got {n}")
    windowed = config.windowed_layers and config.windowed_layers[:n]
    with torch.device("meta"):
        short = Transformer(replace(config, n_layers=n, windowed_layers=windowed))
    short.embed, short.norm, short.head = model.embed, model.norm, model.head
    short.layers = nn.ModuleList(model.layers[:n])
    short.tokenizer = model.tokenizer
    return short.train(model.training)
