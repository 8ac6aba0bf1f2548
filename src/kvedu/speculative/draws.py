"""Every random choice of speculation, by two verbs: a thing happens, or a token is picked."""

from __future__ import annotations

import secrets

import torch
from torch import Tensor

from kvedu.model.sampling import Sampling


class Draws:
    """One completion's random stream: proposer and verifier share it, so their choices are independent.

    (Two streams of one seed would not be: the draft's draw would foretell the verdict on it.)
    Same settings, same seed, same proposer: same tokens. They are not the tokens that ``generate`` draws
    with that seed, since more numbers are used; only the distribution is the same.
    """

    def __init__(self, sampling: Sampling, copy: int = 0) -> None:
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        self._generator = torch.Generator().manual_seed((seed + copy * 0x9E3779B97F4A7C15) % 2**63)

    def _uniform(self) -> float:
        return float(torch.rand(1, generator=self._generator, dtype=torch.float64))

    def happens(self, probability: float) -> bool:
        """Whether an event of this probability comes true; always at 1 or more, never at 0."""
        return self._uniform() < probability

    def pick(self, p_V: Tensor) -> int:
        """A token drawn from ``[V]`` weights (float64, not all 0); tokens of weight 0 are never picked."""
        ids = torch.nonzero(p_V).flatten()
        if len(ids) == 1:
            return int(ids[0])
        cumulative = p_V[ids].cumsum(-1)
        u = self._uniform() * float(cumulative[-1])
        place = int(torch.searchsorted(cumulative, torch.tensor(u, dtype=cumulative.dtype, device=p_V.device), right=True))
        return int(ids[min(place, len(ids) - 1)])
