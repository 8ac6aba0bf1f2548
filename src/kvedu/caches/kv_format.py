"""How a whole cache is quantized: a format for keys, one for values, and how many of the last tokens stay as they came."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kvedu.caches.formats import Format, float8, integer
from kvedu.config import ModelConfig
from kvedu.errors import CacheError


@dataclass(frozen=True, eq=False)
class KVFormat:
    """What ``PagedQuantizedCache`` and ``Engine(kv_format=...)`` are given; the presets below name the usual ones.

    ``residual`` tokens before a query are seen in full precision; ``apart`` says which key channels are set apart, where the
    keys' format sets some apart (int64 ``[L, K, n]``, see ``caches.outliers``).

    >>> KVFormat.kivi(bits=2, group=32).unit        # keys of 32 tokens share a scale, so 32 tokens are coded at a time
    32
    """

    keys: Format
    values: Format
    residual: int = 0
    apart: Tensor | None = None

    def __post_init__(self) -> None:
        if self.residual < 0:
            raise CacheError(f"residual counts the last tokens kept exact: at least 0, not {self.residual}")

    @property
    def unit(self) -> int:
        """Tokens that are coded at a time: a multiple of both sides' groups along the tokens."""
        return math.lcm(self.keys.step, self.values.step)

    @property
    def tail(self) -> int:
        """Tokens before a query that it may see in full precision, at most."""
        return self.residual + self.unit - 1

    @staticmethod
    def int8(group: int = 64) -> KVFormat:
        """8 bits per token, asymmetric, nothing kept beside the codes."""
        return KVFormat(integer(8, group), integer(8, group))

    @staticmethod
    def fp8(kind: str = "e4m3") -> KVFormat:
        """8-bit floats without scales, as engines offer them; what is too large saturates."""
        return KVFormat(float8(kind), float8(kind))

    @staticmethod
    def kivi(bits: int = 2, group: int = 32, residual: int = 128) -> KVFormat:
        """KIVI (Liu et al. 2024): keys per channel, values per token, asymmetric; see ``QuantizedCache.kivi``."""
        return KVFormat(integer(bits, group, "tokens"), integer(bits, group), residual)


def checked_apart(
    apart: Tensor | None, keys: Format, values: Format, n_layers: int, config: ModelConfig, device: torch.device
) -> Tensor | None:
    """The key channels to set apart, int64 ``[L, K, n]`` on the device, or None. Raises ``CacheError`` where they are not the format's."""
    if values.apart:
        raise CacheError("channels are set apart from keys; values have none that stand out. Use a values format without")
    wanted = (n_layers, config.K, keys.apart)
    if not keys.apart and apart is None:
        return None
    if apart is None or tuple(apart.shape) != wanted or apart.dtype.is_floating_point:
        got = "none were given" if apart is None else f"got {apart.dtype} {tuple(apart.shape)}"
        raise CacheError(f"the format of the keys sets {keys.apart} channels apart: which? Give integers of shape {wanted}; {got}")
    if apart.numel() and (apart.min() < 0 or apart.max() >= config.D or (apart.sort().values.diff() == 0).any()):
        raise CacheError(f"channels to set apart are different numbers in 0 .. {config.D - 1} for each head")
    return apart.to(device=device, dtype=torch.int64)
