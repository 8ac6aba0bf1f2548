"""Tiny models with random weights, small enough that a law can run on hundreds of them."""

from __future__ import annotations

import torch

from kvedu.config import ModelConfig
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
