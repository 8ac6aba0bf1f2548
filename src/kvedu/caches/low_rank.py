"""The low-rank cache: a GQA model's keys and values of one layer squeezed into one short vector per token.

x, a token's keys and values before RoPE side by side, is close to mean + z up for a z of Z elements, if the
basis is well chosen (``compress.latent_from_gqa``). Only z is stored; keys are made again and turned when they are
attended to. RoPE stands between a key and its latent, at another angle for each position, so the keys' half
of ``up`` cannot be absorbed into the query as in a model that was built for it (``model.attention_latent``).
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.layout import Row
from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import CacheError
from kvedu.kernels.attention import attention_grouped, attention_reference
from kvedu.kernels.rope import cos_sin, rotate, rotate_reference


class Basis(NamedTuple):
    """One layer's way down to its latent and up again; X = K (D + Dv) elements, keys of all heads, then values."""

    down_XZ: Tensor
    up_ZX: Tensor
    mean_X: Tensor

    def latent(self, x_NX: Tensor) -> Tensor:
        """``[N, Z]``."""
        return (x_NX - self.mean_X) @ self.down_XZ

    def rebuilt(self, z_NZ: Tensor) -> Tensor:
        """``[N, X]``: what the latent still knows."""
        return self.mean_X + z_NZ @ self.up_ZX


class LowRankView(View):
    """Rebuilds keys and values from their latents and turns keys to their places in the text."""

    def __init__(self, cache: LowRankCache, rows: tuple[Row, ...]) -> None:
        super().__init__(cache, rows)
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}

    def rotate(self, q_NHD: Tensor, k_NKD: Tensor) -> tuple[Tensor, Tensor]:
        """Nothing yet: keys go into the latent plain."""
        return q_NHD, k_NKD

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        window, outs = self.window(layer), []
        for row in self.rows:
            k_SKD, v_SKD = self.cache._read(layer, row.seq, row.total)
            cos, sin = self._table(row, q_NHD.dtype)
            k_SKD = rotate(k_SKD.to(q_NHD.dtype), cos, sin)
            q_BTHD = rotate(q_NHD[row.rows], cos[row.start :], sin[row.start :])[None]
            k_BKSD, v_BKSD = (x_SKD.transpose(0, 1)[None] for x_SKD in (k_SKD, v_SKD))
            mask = None if row.count == 1 and not window else self.visible(row, window)[None]
            outs.append(attention_grouped(q_BTHD, k_BKSD, v_BKSD, mask)[0])
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    def attend_reference(self, layer: int, q_NHD: Tensor) -> Tensor:
        """Reference attention over what ``gather`` gives, turned here."""
        rope, outs = self.cache.config.rope, []
        for row in self.rows:
            k_SKD, v_SKD, positions_S = self.gather(layer, row.seq)
            k_SKD = rotate_reference(k_SKD, positions_S, rope)
            q_THD = rotate_reference(q_NHD[row.rows], positions_S[row.start :], rope)
            outs.append(attention_reference(q_THD, k_SKD, v_SKD, self.visible(row, self.window(layer))))
        return torch.cat(outs)

    def _table(self, row: Row, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if row.seq not in self._tables:
            positions_S = torch.tensor(row.positions, device=self.cache.device)
            self._tables[row.seq] = cos_sin(self.cache.config.rope, positions_S, dtype, row.end_position)
        return self._tables[row.seq]


class LowRankCache(Cache):
    """Latents ``[S, Z]`` of each (sequence, layer), by the ``bases`` of its layers.

    Memory: Z elements a token and layer, as ``analysis.memory`` counts a latent without a rotated part; bases are
    weights, not cache, and their bytes are ``basis_bytes``. Cost: a step makes S keys and values anew, 2 S Z X FLOPs a
    layer beside attention. Source: the idea is Palu's (Chang et al. 2024), with one latent for keys and values as in
    DeepSeek-V2.

    Raises ``CacheError`` for bases that do not fit the model, and for a RoPE whose frequencies change with length.
    """

    view: type[View] = LowRankView
    pre_rope = True
    any_value_width = True
    exceptions = {
        "keeps exact values": "keys and values come back as their latent has them",
        "same bits in any chunking": "a latent is a matrix product, whose last bits depend on how many tokens come at once",
    }

    def __init__(self, config: ModelConfig, *, bases: Sequence[Basis], **kwargs) -> None:
        super().__init__(config, **kwargs)
        X = config.K * (config.D + config.Dv)
        if len(bases) != self.n_layers:
            raise CacheError(f"{len(bases)} bases for {self.n_layers} layers; compress.latent_from_gqa makes one for each")
        for layer, basis in enumerate(bases):
            Z = basis.down_XZ.shape[-1]
            if [tuple(x.shape) for x in basis] != [(X, Z), (Z, X), (X,)]:
                raise CacheError(
                    f"the basis of layer {layer} has shapes {[list(x.shape) for x in basis]}; keys and values of a token are {X} "
                    f"elements, so it should be [{X}, Z], [Z, {X}] and [{X}]"
                )
        if config.rope.switch_length is not None:
            raise CacheError(f"{config.rope.kind} RoPE changes its frequencies with length; a low-rank cache turns keys by one set")
        self.bases = [Basis(*(x.to(self.device, torch.float32) for x in basis)) for basis in bases]
        self._latents: dict[tuple[int, int], Tensor] = {}

    @property
    def nbytes(self) -> int:
        return storage_bytes(list(self._latents.values()))

    @property
    def basis_bytes(self) -> int:
        """Bytes of the bases, held once whatever the number of tokens."""
        return storage_bytes([x for basis in self.bases for x in basis])

    def _allocate(self, seq: int, source: int | None) -> None:
        for layer, basis in enumerate(self.bases):
            if source is not None:
                self._latents[seq, layer] = self._latents[source, layer]
            else:
                self._latents[seq, layer] = torch.empty(0, basis.up_ZX.shape[0], dtype=self.dtype, device=self.device)

    def _drop(self, seq: int) -> None:
        for layer in range(self.n_layers):
            del self._latents[seq, layer]

    def _write(self, view: View, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        x_NX = torch.cat((k_NKD.flatten(1), v_NKD.flatten(1)), dim=1).to(torch.float32)
        z_NZ = self.bases[layer].latent(x_NX).to(self.dtype)
        for row in view.rows:
            self._latents[row.seq, layer] = torch.cat((self._latents[row.seq, layer], z_NZ[row.rows]))

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        K, D, Dv = self.config.K, self.config.D, self.config.Dv
        x_SX = self.bases[layer].rebuilt(self._latents[seq, layer][:length].to(torch.float32)).to(self.dtype)
        k_SX, v_SX = x_SX.split((K * D, K * Dv), dim=1)
        return k_SX.unflatten(1, (K, D)), v_SX.unflatten(1, (K, Dv))

    def _shrink(self, seq: int, length: int) -> None:
        for layer in range(self.n_layers):
            if len(self._latents[seq, layer]) > length:
                self._latents[seq, layer] = self._latents[seq, layer][:length].clone()

    def _compact(self, seq: int, indices: list[int]) -> None:
        index = torch.tensor(indices, dtype=torch.long, device=self.device)
        for layer in range(self.n_layers):
            self._latents[seq, layer] = self._latents[seq, layer][index]
