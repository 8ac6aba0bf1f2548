"""A draft's own, smaller vocabulary: the frequent tokens, and the way back to all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Sequence

import torch
from torch import Tensor

from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling, distribution


@dataclass(frozen=True, eq=False)
class DraftVocabulary:
    """R of the target's V token ids, ascending. A draft scores only these: its head is R / V of the target's.

    A token outside is never guessed and has draft probability 0, which leaves verification exact: where it is what the
    target wants, the guess is rejected and the target's own pass supplies it.
    FR-Spec (Zhao et al. 2025, 2502.14856); EAGLE-3 (Li et al. 2025, 2503.01840).

    Raises ``RequestError`` for ids that do not ascend or lie outside the target's vocabulary.
    """

    ids_R: Tensor
    V: int

    def __post_init__(self) -> None:
        ids = self.ids_R
        if ids.ndim != 1 or not len(ids) or bool((ids[1:] <= ids[:-1]).any()) or not 0 <= int(ids[0]) <= int(ids[-1]) < self.V:
            raise RequestError(
                f"a draft vocabulary is ascending token ids from 0 to {self.V - 1}; got {tuple(ids.shape)} of them, {ids.tolist()[:6]} ..."
            )

    @classmethod
    def frequent(cls, counts_V: Tensor, size: int, always: Sequence[int] = ()) -> DraftVocabulary:
        """The ``size`` tokens of the largest counts ``[V]``, the smaller id first among equals; ``always`` are among them."""
        counts_V = counts_V.clone()
        if always:
            counts_V[list(always)] = counts_V.max() + 1
        order_V = torch.sort(counts_V, descending=True, stable=True).indices
        return cls(order_V[:size].sort().values, len(counts_V))

    def __len__(self) -> int:
        return len(self.ids_R)

    @cached_property
    def ids(self) -> list[int]:
        """The ids as plain numbers: place to id."""
        return self.ids_R.tolist()

    @cached_property
    def place(self) -> dict[int, int]:
        """Id to place."""
        return {token: place for place, token in enumerate(self.ids)}

    @cached_property
    def place_V(self) -> Tensor:
        """Place of every id ``[V]``, -1 where it has none."""
        place_V = torch.full((self.V,), -1, dtype=torch.long)
        place_V[self.ids_R] = torch.arange(len(self))
        return place_V

    def rows(self, weight_VM: Tensor) -> Tensor:
        """The rows of a head or an embedding that belong to these ids: ``[R, M]``."""
        return weight_VM[self.ids_R.to(weight_VM.device)]

    def covers(self, ids: Sequence[int]) -> float:
        """Share of a text's tokens that can be guessed at all."""
        return sum(token in self.place for token in ids) / len(ids)

    def distribution(self, logits_R: Tensor, sampling: Sampling, seen: Sequence[int] = ()) -> Tensor:
        """What a guess is drawn from, over the target's ids: ``[V]`` float64, sum 1, 0 outside. As ``sampling.distribution``."""
        places = [self.place[token] for token in set(seen) & self.place.keys()] if sampling.repetition_penalty != 1 else ()
        q_R = distribution(logits_R, sampling, places)
        return torch.zeros(self.V, dtype=q_R.dtype, device=q_R.device).index_put((self.ids_R.to(q_R.device),), q_R)
