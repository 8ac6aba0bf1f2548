"""What a model needs in memory to serve: weights, KV cache and one step's activations, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.weights import activation_bytes, weight_bytes
from kvedu.config import ModelConfig
from kvedu.errors import KveduError
from kvedu.units import binary


@dataclass(frozen=True)
class Footprint:
    """Bytes of the three things that a GPU's memory must hold at once."""

    weights: int
    kv_cache: int
    activations: int

    @property
    def total(self) -> int:
        """All three, in bytes."""
        return self.weights + self.kv_cache + self.activations

    def __str__(self) -> str:
        parts = (("weights", self.weights), ("KV cache", self.kv_cache), ("activations", self.activations))
        return " + ".join(f"{name} {binary(n)}" for name, n in parts) + f" = {binary(self.total)}"


def memory(
    model: ModelConfig | str | object,
    tokens: int,
    batch: int = 1,
    *,
    bytes_per_element: int = 2,
    kv_bytes_per_element: int | None = None,
) -> Footprint:
    """Memory to hold ``batch`` sequences of ``tokens`` tokens each and run one decode step over them.

    ``model`` is a ``ModelConfig``, a loaded model, or the name of one of
    ``analysis.known_models``. The cache may have another element size than the weights.
    Raises ``KveduError`` for an unknown name, or a model whose weights kvedu cannot count.

    >>> print(memory("Llama-3-8B", tokens=8192, batch=16))
    weights 14.96 GiB + KV cache 16.00 GiB + activations 4.16 MiB = 30.96 GiB
    """
    if isinstance(model, str):
        name, model = model, known_model(model).config
        if model is None:
            raise KveduError(f"{name} is of a family whose weights kvedu does not count; size its cache with kv_cache_bytes")
    config = model if isinstance(model, ModelConfig) else getattr(model, "config", None)
    if not isinstance(config, ModelConfig):
        raise KveduError(f"memory() takes a ModelConfig, a loaded model or a known name, not {type(model).__name__}")
    return Footprint(
        weights=weight_bytes(config, bytes_per_element),
        kv_cache=kv_cache_bytes(config, tokens, batch, kv_bytes_per_element or bytes_per_element),
        activations=activation_bytes(config, 1, batch, max(tokens - 1, 0), bytes_per_element),
    )
