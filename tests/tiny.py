"""Tiny models with random weights, small enough that a law can run on hundreds of them."""

from __future__ import annotations

from dataclasses import replace

import torch

from kvedu.caches.shared import cross_layer
from kvedu.config import ModelConfig
from kvedu.config_latent import LatentConfig
from kvedu.model.transformer import Transformer
from kvedu.rope_config import RopeConfig


def tiny_config(H: int = 4, K: int = 2, D: int = 8, L: int = 2, V: int = 97, **changes) -> ModelConfig:
    """A model of a few thousand weights; ``rope`` may be given as a RopeConfig or left to the default kind."""
    settings = dict(
        n_layers=L,
        width=32,
        n_heads=H,
        n_kv_heads=K,
        head_dim=D,
        mlp_width=48,
        vocab_size=V,
        max_positions=256,
        rope=RopeConfig(dim=D, max_positions=256),
    )
    return ModelConfig(**(settings | changes))


def with_latents(config: ModelConfig, absorbed: bool = True, **changes) -> ModelConfig:
    """The same sizes with multi-head latent attention: latents of 12, 4 rotated elements, keys and values of other widths."""
    widths = dict(width=12, rope_width=4, nope_width=6, value_width=5, query_width=10) | changes
    latent = LatentConfig(**widths, absorbed=absorbed)
    K, D, _ = latent.cached(config.H)
    rope = replace(config.rope, dim=latent.rope_width)
    return replace(config, family="deepseek_v3", latent=latent, n_kv_heads=K, head_dim=D, rope=rope)


def with_sharing(config: ModelConfig, sharing: int = 2) -> ModelConfig:
    """``sharing`` times the layers, of which each run reads its first one's keys: as many in a cache as before."""
    L = config.L * sharing
    windowed = config.windowed_layers and tuple(w for w in config.windowed_layers for _ in range(sharing))
    return replace(config, n_layers=L, kv_source=cross_layer(L, sharing), windowed_layers=windowed)


def tiny_model(config: ModelConfig | None = None, seed: int = 0, scale: float = 0.3) -> Transformer:
    """Weights drawn from a seed, large enough that greedy tokens differ from step to step."""
    model = Transformer(config or tiny_config())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(1.0 if "norm" in name else 0.0, 0.1 if "norm" in name else scale, generator=generator)
    return model.eval()


def random_ids(n: int, V: int = 97, seed: int = 0) -> list[int]:
    """``n`` token ids from a seed."""
    return torch.randint(0, V, (n,), generator=torch.Generator().manual_seed(seed)).tolist()
