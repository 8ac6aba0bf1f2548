"""Which key channels stand out, found by looking at keys of real text.

Keys of many models have a few channels that are large in every token, after rotation by position in both
channels of the pair (KIVI, Liu et al. 2024, figure 2; KVQuant, Hooper et al. 2024). Stored apart, they
no longer stretch the range that a token's other channels share.
"""

from __future__ import annotations

from typing import Callable, Sequence

import torch
from torch import Tensor

from kvedu.caches.concat import ConcatCache
from kvedu.caches.view import View
from kvedu.config import ModelConfig


def outlier_channels(k_SKD: Tensor, channels: int) -> Tensor:
    """The ``channels`` of each head that are largest on average: ascending, int64 ``[K, channels]``."""
    order_KD = k_SKD.to(torch.float32).abs().mean(0).argsort(dim=-1, descending=True, stable=True)
    return order_KD[:, :channels].sort(dim=-1).values


@torch.inference_mode()
def find_outliers(
    model: Callable[[Tensor, View], Tensor], config: ModelConfig, ids: Sequence[int], channels: int, **kwargs
) -> Tensor:
    """Run a model over a calibration text once and take each layer's ``outlier_channels``: int64 ``[L, K, channels]``.

    ``kwargs`` go to the full-precision cache that the keys are read from (dtype, device).

    >>> channels_LKn = find_outliers(model, model.config, ids, 2)                                   # doctest: +SKIP
    >>> QuantizedCache(model.config, keys=with_apart(integer(4, 64), 2), values=integer(4, 64), apart=channels_LKn)  # doctest: +SKIP
    """
    cache = ConcatCache(config, **kwargs)
    seq = cache.add()
    with cache.step({seq: len(ids)}) as view:
        model(torch.tensor(ids, device=cache.device), view)
    return torch.stack([outlier_channels(cache._read(layer, seq, len(ids))[0], channels) for layer in range(cache.n_layers)])
