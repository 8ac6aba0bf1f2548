"""The latent cache: one vector per token and layer, which serves as the key and holds the value in it.

Multi-head latent attention, absorbed (``model.attention_latent``), hands a cache one KV head: the key is
[rotated R | latent Z], and the value is the latent, the key's last Z elements. Stored once,
that is Z + R elements instead of 2 Z + R, and instead of the (D + Dv) H of keys and values of every head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.dense import DenseView
from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import CacheError


def check_absorbed(config: ModelConfig) -> None:
    """Refuse a model whose cache would not hold latents: one without them, or one that is loaded written out."""
    if config.latent is None:
        raise CacheError(
            f"a latent cache is for multi-head latent attention, and this is {config.attention_kind}; use ConcatCache, or "
            "LowRankCache with a latent found by compress.latent_from_gqa"
        )
    if not config.latent.absorbed:
        raise CacheError(
            "this model's latent attention is written out: it caches keys and values of every head. Load it with "
            "config.with_absorbed(True), or use ConcatCache"
        )


class LatentCache(Cache):
    """Vectors ``[S, 1, R + Z]`` of each (sequence, layer); values are read out of them, not stored.

    Memory: Z + R elements a token and layer, as ``analysis.memory`` has it for a model with latents.
    Cost: a step copies what is held, as in ``ConcatCache``; a fork shares its parent's vectors.
    Source: DeepSeek-V2 (2024): their cache holds c^KV and k^R.

    Raises ``CacheError`` for a model without latents, or with latent attention that is written out.
    """

    view: type[View] = DenseView
    any_value_width = True

    def __init__(self, config: ModelConfig, **kwargs) -> None:
        check_absorbed(config)
        super().__init__(config, **kwargs)
        self.rope_width = config.latent.rope_width
        self._vectors: dict[tuple[int, int], Tensor] = {}

    @property
    def nbytes(self) -> int:
        return storage_bytes(list(self._vectors.values()))

    def _allocate(self, seq: int, source: int | None) -> None:
        for layer in range(self.n_layers):
            if source is not None:
                self._vectors[seq, layer] = self._vectors[source, layer]
            else:
                self._vectors[seq, layer] = torch.empty(0, 1, self.config.D, dtype=self.dtype, device=self.device)

    def _drop(self, seq: int) -> None:
        for layer in range(self.n_layers):
            del self._vectors[seq, layer]

    def _write(self, view: View, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        """The keys; the values are part of them."""
        for row in view.rows:
            self._vectors[row.seq, layer] = torch.cat((self._vectors[row.seq, layer], k_NKD[row.rows].to(self.dtype)))

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        k_SKD = self._vectors[seq, layer][:length]
        return k_SKD, k_SKD[..., self.rope_width :]

    def _shrink(self, seq: int, length: int) -> None:
        for layer in range(self.n_layers):
            if len(self._vectors[seq, layer]) > length:
                self._vectors[seq, layer] = self._vectors[seq, layer][:length].clone()

    def _compact(self, seq: int, indices: list[int]) -> None:
        index = torch.tensor(indices, dtype=torch.long, device=self.device)
        for layer in range(self.n_layers):
            self._vectors[seq, layer] = self._vectors[seq, layer][index]
