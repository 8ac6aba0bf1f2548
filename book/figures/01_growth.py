"""The answer of chapter 1's model to its question, token by token, with a cache."""

from typing import Any

import torch

import kvedu
from kvedu.caches.concat import ConcatCache
from kvedu.model.loops import greedy_cached
from kvedu.viz import growth

NEW = 24


def run() -> dict[str, Any]:
    """The figure's data, from the real model."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
    tokenizer = model.tokenizer
    prompt = tokenizer.encode("Why is the sky blue? The sky is blue because")
    new = greedy_cached(model, prompt, NEW, ConcatCache(model.config))
    pieces = [[tokenizer.decode([token]) for token in ids] for ids in (prompt, new)]
    return growth.data(*pieces, model.config, step=6)
