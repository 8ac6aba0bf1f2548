"""The queries of a layer in sums: how many there were, what they were on average, and how they vary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Sums over the queries so far, as they were before RoPE turned them: their number, their sum, their outer products.

    fp32 ``[K, G, D]`` and ``[K, G, D, D]``. They say what the next queries will be like.
    """

    count: int
    sum_KGD: Tensor
    outer_KGDD: Tensor

    @classmethod
    def none(cls, K: int, G: int, D: int, device: torch.device) -> Moments:
        """Of no queries."""
        return cls(0, torch.zeros(K, G, D, device=device), torch.zeros(K, G, D, D, device=device))

    def after(self, q_TKGD: Tensor) -> Moments:
        """With more queries."""
        q = q_TKGD.to(torch.float32)
        return Moments(self.count + len(q), self.sum_KGD + q.sum(0), self.outer_KGDD + torch.einsum("tkgd,tkge->kgde", q, q))

    @property
    def mean_KGD(self) -> Tensor:
        """Mean query."""
        return self.sum_KGD / self.count

    @property
    def covariance_KGDD(self) -> Tensor:
        """Covariance of the queries."""
        mean = self.mean_KGD
        return self.outer_KGDD / self.count - mean[..., :, None] * mean[..., None, :]
