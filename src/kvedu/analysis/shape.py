"""What attention keeps per token, as a handful of numbers: enough to size any KV cache.

``ModelConfig`` describes models that kvedu can run. ``AttentionShape`` describes what any
decoder's cache holds, so that Falcon, Gemma or DeepSeek can be sized without being run.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvedu.config import ModelConfig
from kvedu.errors import ConfigError


@dataclass(frozen=True)
class AttentionShape:
    """The numbers of one model that decide the size of its KV cache.

    ``window`` is the number of keys that a query of a windowed layer sees, itself
    included; ``windowed_layers`` how many layers use it (None: all, if there is a window).
    ``latent`` and ``rope_width`` describe multi-head latent attention: per token and layer
    one vector of latent + rope_width elements serves as key and as value. ``value_dim`` is the size of a value
    where it is not that of a key. ``n_layers`` counts layers with keys and values of their own.

    Raises ``ConfigError`` when the numbers contradict each other.
    Source: DeepSeek-V2 (2024) for latents; their d_c is our Z (``latent``), their d_h^R our
    ``rope_width``, their d_h our D.

    >>> AttentionShape(n_layers=32, n_heads=32, n_kv_heads=8, head_dim=128).elements
    2048
    >>> AttentionShape(61, 128, 128, 128, latent=512, rope_width=64).elements
    576
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    window: int | None = None
    windowed_layers: int | None = None
    latent: int | None = None
    rope_width: int = 0
    value_dim: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_layers", "n_heads", "n_kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(
                f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads evenly. n_kv_heads counts "
                "KV heads (our K), not queries per KV head (our G = H / K)"
            )
        if self.window is not None and self.window < 1:
            raise ConfigError(f"window must be at least 1, or None for none, not {self.window}")
        if self.windowed_layers is not None and self.window is None:
            raise ConfigError(f"windowed_layers is {self.windowed_layers} but there is no window")
        if not 0 <= (self.windowed_layers or 0) <= self.n_layers:
            raise ConfigError(f"windowed_layers is {self.windowed_layers} in a model of {self.n_layers} layers")
        if self.latent is not None and self.latent < 1:
            raise ConfigError(f"latent must be at least 1, or None for none, not {self.latent}")
        if self.rope_width < 0 or (self.rope_width and self.latent is None):
            raise ConfigError(f"rope_width {self.rope_width} belongs to a latent cache only, and is never negative")
        if self.value_dim is not None and (self.value_dim < 1 or self.latent is not None):
            raise ConfigError(f"value_dim {self.value_dim} is the size of stored values: at least 1, and none with a latent")

    @property
    def kind(self) -> str:
        """``"MHA"``, ``"GQA"``, ``"MQA"`` or ``"MLA"``."""
        if self.latent is not None:
            return "MLA"
        if self.n_kv_heads == self.n_heads:
            return "MHA"
        return "MQA" if self.n_kv_heads == 1 else "GQA"

    @property
    def vectors(self) -> tuple[tuple[int, int], ...]:
        """Vectors stored per token and layer, as (how many, how long): keys, then values.

        A latent cache stores one vector, not two: key and value are both read from it.
        """
        if self.latent is not None:
            return ((1, self.latent + self.rope_width),)
        return ((self.n_kv_heads, self.head_dim), (self.n_kv_heads, self.value_dim or self.head_dim))

    @property
    def elements(self) -> int:
        """Elements stored per token and layer: 2KD, or Z plus the rope part for a latent."""
        return sum(count * length for count, length in self.vectors)

    def layer_groups(self) -> tuple[tuple[int, int | None], ...]:
        """Layers that behave alike, as (how many, their window or None)."""
        windowed = 0 if self.window is None else self.n_layers if self.windowed_layers is None else self.windowed_layers
        groups = ((windowed, self.window), (self.n_layers - windowed, None))
        return tuple(group for group in groups if group[0])


def shape_of(model: ModelConfig | AttentionShape) -> AttentionShape:
    """The attention shape of a config; a shape is returned as it is.

    Layers that read another's keys are not counted; latents are, where attention is absorbed (written out, keys and
    values of every head are what a cache holds).

    >>> from kvedu.rope_config import RopeConfig
    >>> config = ModelConfig(n_layers=30, width=576, n_heads=9, n_kv_heads=3, head_dim=64, mlp_width=1536,
    ...                      vocab_size=49152, max_positions=8192, rope=RopeConfig(64), tied=True)
    >>> shape_of(config).kind, shape_of(config).elements
    ('GQA', 384)
    """
    if isinstance(model, AttentionShape):
        return model
    windows = [model.window(layer) for layer in model.kv_layers]
    windowed = sum(window is not None for window in windows)
    absorbed = model.latent if model.latent is not None and model.latent.absorbed else None
    return AttentionShape(
        n_layers=len(windows),
        n_heads=model.H,
        n_kv_heads=model.K,
        head_dim=model.D,
        latent=absorbed and absorbed.width,
        rope_width=absorbed.rope_width if absorbed else 0,
        value_dim=model.Dv if absorbed is None and model.Dv != model.D else None,
        window=model.sliding_window if windowed else None,
        windowed_layers=windowed if windowed else None,
    )
