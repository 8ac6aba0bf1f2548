"""A model whose layers read each other's keys and values: a smaller cache, at a price that training would pay back."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from kvedu.compress.plain_state import plain_state
from kvedu.errors import ConfigError
from kvedu.model.load import build
from kvedu.model.transformer import Transformer


def share_layers(model: Transformer, sources: Sequence[int]) -> Transformer:
    """A new model in which layer i reads the keys and values of layer ``sources[i]`` (``caches.shared`` has maps).

    Layers that read another's lose their own key and value weights; everything else is copied. What
    such a layer looks for was never trained on the other's keys, so an untrained model loses much by it: the
    rewrite is where uptraining starts (Brandon et al. 2024 train from scratch). Any cache made for its config holds
    only the layers that are read.

    Raises ``ConfigError`` where a layer would read a later one, one that has no keys, or one with another window,
    and for a model that shares already or has latents. Cost: a copy of the weights.
    """
    if model.config.kv_source is not None:
        raise ConfigError("this model's layers share keys already; start from the model that they were made from")
    config = replace(model.config, kv_source=tuple(sources))
    rows, state = config.H * config.D, plain_state(model)
    for layer in range(config.L):
        if not config.reads_own(layer):
            attn = f"layers.{layer}.attn"
            state.pop(f"{attn}.k_norm.weight", None)
            for name in (f"{attn}.qkv.weight", f"{attn}.qkv.bias"):
                if name in state:
                    state[name] = state[name][:rows].clone()
    made = build(config, state)
    made.tokenizer = model.tokenizer
    return made
