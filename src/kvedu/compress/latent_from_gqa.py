"""From a GQA model's keys and values to a low-rank latent: one basis per layer, by SVD, and the loss that is left.

A layer's keys (before RoPE) and values of all heads make one vector x of X = K (D + Dv) elements. The Z directions in
which x varies most over a calibration text are the best linear latent for that text: the right singular vectors of
the centered matrix of all x, found here as eigenvectors of its covariance.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch
from torch import Tensor

from kvedu.caches.low_rank import Basis
from kvedu.caches.none import NoCache
from kvedu.caches.view import View
from kvedu.errors import ConfigError, RequestError
from kvedu.model.layers import Linear
from kvedu.model.transformer import Transformer


class Spread(NamedTuple):
    """How a layer's x lies over a text: its mean and covariance, fp64."""

    mean_X: Tensor
    covariance_XX: Tensor


@torch.inference_mode()
def spread_over(model: Transformer, ids: Sequence[int], window: int = 512) -> list[Spread]:
    """Each layer's spread over a calibration text, read in windows of ``window`` tokens.

    Cost: one forward pass over the text. Raises ``RequestError`` for a text of less than two tokens.
    """
    _check(model)
    if len(ids) < 2:
        raise RequestError(f"{len(ids)} tokens do not vary; calibrate on a text, some thousand tokens are enough")
    cache = _Watching(model.config, dtype=model.dtype, device=model.device)
    for start in range(0, len(ids), window):
        new = torch.tensor(ids[start : start + window], device=model.device)
        seq = cache.add()
        with cache.step({seq: len(new)}) as view:
            model.hidden(new, view)
        cache.free(seq)
    spreads = []
    for sum_X, outer_XX in cache.sums:
        mean_X = sum_X / len(ids)
        spreads.append(Spread(mean_X, outer_XX / len(ids) - torch.outer(mean_X, mean_X)))
    return spreads


def spread_of_weights(model: Transformer) -> list[Spread]:
    """The spread that weights alone would give if a layer's input were noise, all directions alike: no text is needed.

    The eigenvectors are then the left singular vectors of the stacked key and value projections.
    """
    _check(model)
    spreads, rows = [], model.config.H * model.config.D
    for block in model.layers:
        linear: Linear = block.attn.qkv
        w_XM = (linear.plain_weight().detach()[rows:] * block.attn_norm.weight.detach()).to(torch.float64)
        mean_X = w_XM.new_zeros(len(w_XM)) if linear.bias is None else linear.bias.detach()[rows:].to(torch.float64)
        spreads.append(Spread(mean_X, w_XM @ w_XM.T))
    return spreads


def latent_bases(model: Transformer, spreads: Sequence[Spread], width: int, *, balance: bool = True) -> list[Basis]:
    """One basis of ``width`` Z elements per layer, for ``LowRankCache``.

    ``balance`` measures keys and values each by its own spread before choosing; without it keys,
    whose numbers are larger, get most of the latent. Memory falls from X to Z elements a token and layer.

    Raises ``ConfigError`` for a width that is none, or no smaller than what it replaces.
    Source of balancing: TransMLA (Meng et al. 2025), who make a checkpoint for absorbed attention of it.
    """
    config = model.config
    n_keys, X = config.K * config.D, config.K * (config.D + config.Dv)
    if not 1 <= width <= X:
        raise ConfigError(f"a latent of {width} elements for {X} elements of keys and values: give 1 to {X}")
    bases = []
    for mean_X, covariance_XX in spreads:
        variance_X = covariance_XX.diagonal()
        size_X = torch.ones_like(variance_X)
        if balance:
            size_X[:n_keys], size_X[n_keys:] = variance_X[:n_keys].mean().sqrt(), variance_X[n_keys:].mean().sqrt()
        _, directions_XX = torch.linalg.eigh(covariance_XX / torch.outer(size_X, size_X))  # ascending
        best_XZ = directions_XX[:, X - width :]
        bases.append(Basis((best_XZ / size_X[:, None]).float(), (best_XZ * size_X[:, None]).T.contiguous().float(), mean_X.float()))
    return bases


def share_kept(spread: Spread, basis: Basis, n_keys: int) -> tuple[float, float]:
    """Share of the keys' and of the values' variance that a basis keeps: 1 is all of it."""
    up, down = basis.up_ZX.to(torch.float64), basis.down_XZ.to(torch.float64)
    left_XX = torch.eye(len(up.T), dtype=torch.float64, device=up.device) - up.T @ down.T  # what rebuilding loses of x
    lost_X = (left_XX @ spread.covariance_XX @ left_XX.T).diagonal()
    had_X = spread.covariance_XX.diagonal()
    keys, values = (1 - float(lost_X[half].sum() / had_X[half].sum()) for half in (slice(n_keys), slice(n_keys, None)))
    return keys, values


def _check(model: Transformer) -> None:
    if model.config.latent is not None or model.config.kv_source is not None:
        raise ConfigError("this model's cache is reduced already; a latent is made for one whose layers all keep keys and values")


class _WatchingView(NoCache.view):
    """Shows its cache every layer's keys as they are before RoPE, and its values."""

    def rotate(self, q_NHD: Tensor, k_NKD: Tensor) -> tuple[Tensor, Tensor]:
        self._plain_NKD = k_NKD
        return super().rotate(q_NHD, k_NKD)

    def append(self, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        self.cache.watch(layer, self._plain_NKD, v_NKD)
        super().append(layer, k_NKD, v_NKD)


class _Watching(NoCache):
    """Remembers sums only."""

    view: type[View] = _WatchingView

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        X = self.config.K * (self.config.D + self.config.Dv)
        zeros = [torch.zeros(X, X + 1, dtype=torch.float64, device=self.device) for _ in range(self.n_layers)]
        self.sums = [(x[:, 0], x[:, 1:]) for x in zeros]

    def watch(self, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        """Add tokens to a layer's sums."""
        x_NX = torch.cat((k_NKD.flatten(1), v_NKD.flatten(1)), dim=1).to(torch.float64)
        sum_X, outer_XX = self.sums[layer]
        sum_X += x_NX.sum(0)
        outer_XX += x_NX.T @ x_NX
