"""What an evicting cache stores of one sequence for KV heads of one budget: rows that heads choose each for themselves.

Keys and values are kept as they came, or as codes of a format whose groups lie along the head: there a token has
its scales to itself and can leave alone. New tokens stay exact until their step ends.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from kvedu.caches.formats import Format
from kvedu.caches.moments import Moments
from kvedu.caches.scores import ALL
from kvedu.kernels.codes import Coded, decode, empty, encode


class Side(NamedTuple):
    """Keys or values: codes of the earlier rows (None: no codes), then exact rows ``[S, K, D]``. Never written in place."""

    format: Format | None
    coded: Coded | None
    exact_SKD: Tensor

    @classmethod
    def empty(cls, format: Format | None, K: int, D: int, dtype: torch.dtype, device: torch.device) -> Side:
        """No rows."""
        coded = None if format is None else empty(format, K, D, device)
        return cls(format, coded, torch.empty(0, K, D, dtype=dtype, device=device))

    @property
    def tensors(self) -> list[Tensor]:
        """What is stored."""
        return [self.exact_SKD, *(self.coded.tensors if self.coded is not None else [])]

    @property
    def n_coded(self) -> int:
        """Rows held as codes."""
        return 0 if self.coded is None else len(self.coded.codes)

    def dense(self) -> Tensor:
        """All rows as numbers ``[S, K, D]``: decoded where they are codes."""
        if not self.n_coded:
            return self.exact_SKD
        earlier = decode(self.coded, self.format, self.exact_SKD.shape[-1], self.exact_SKD.dtype)
        return torch.cat((earlier, self.exact_SKD))

    def join(self, new_TKD: Tensor) -> Side:
        """With new rows, exact."""
        return self._replace(exact_SKD=torch.cat((self.exact_SKD, new_TKD.to(self.exact_SKD.dtype))))

    def settled(self) -> Side:
        """All rows as codes, if this side has a format."""
        if self.format is None or not len(self.exact_SKD):
            return self
        return self._replace(coded=self.coded.join(encode(self.exact_SKD, self.format)), exact_SKD=self.exact_SKD[:0].clone())

    def pick(self, index: Sequence[int]) -> Side:
        """These rows, the same in every head."""
        n, device = self.n_coded, self.exact_SKD.device
        early = torch.tensor([i for i in index if i < n], dtype=torch.long, device=device)
        late = torch.tensor([i - n for i in index if i >= n], dtype=torch.long, device=device)
        coded = None if self.coded is None else self.coded.take(early)
        return self._replace(coded=coded, exact_SKD=self.exact_SKD[late])

    def choose(self, best_SK: Tensor) -> Side:
        """The rows that each head has chosen. Settled first, so that they are all codes or all exact."""
        if self.coded is None:
            return self._replace(exact_SKD=_chosen(self.exact_SKD, best_SK))
        return self._replace(coded=Coded(*(None if x is None else _chosen(x, best_SK) for x in self.coded)))


def _chosen(x_SKX: Tensor, best_SK: Tensor) -> Tensor:
    return x_SKX.gather(0, best_SK[..., None].expand(-1, -1, x_SKX.shape[-1]))


class Kept(NamedTuple):
    """Everything held of a sequence for some KV heads of a layer. Row i of two heads may be two different tokens."""

    keys: Side
    values: Side
    positions_SK: Tensor
    weights_QSK: Tensor
    moments: Moments | None

    @property
    def tensors(self) -> list[Tensor]:
        """What is stored."""
        sums = [] if self.moments is None else [self.moments.sum_KGD, self.moments.outer_KGDD]
        return [*self.keys.tensors, *self.values.tensors, self.positions_SK, self.weights_QSK, *sums]

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.positions_SK)

    def join(self, k_TKD: Tensor, v_TKD: Tensor, positions_T: Tensor) -> Kept:
        """With a step's new rows; what was looked at is noted when it ends (``noted``)."""
        new_TK = positions_T[:, None].to(torch.int32).expand(-1, self.positions_SK.shape[1])
        return self._replace(
            keys=self.keys.join(k_TKD), values=self.values.join(v_TKD), positions_SK=torch.cat((self.positions_SK, new_TK))
        )

    def noted(self, new_QSK: Tensor | None, queries: int) -> Kept:
        """Kept weights after a step: room for the new rows, and what the new queries looked at."""
        old_QSK = pad(self.weights_QSK, (0, 0, 0, self.n - self.weights_QSK.shape[1]))
        if new_QSK is not None:
            old_QSK = old_QSK + new_QSK if queries == ALL else torch.cat((old_QSK, new_QSK))[-queries:].clone()
        return self._replace(weights_QSK=old_QSK)

    def settled(self) -> Kept:
        """Keys and values as codes, where they have a format."""
        return self._replace(keys=self.keys.settled(), values=self.values.settled())

    def pick(self, index: Sequence[int]) -> Kept:
        """These rows, the same in every head."""
        at = torch.tensor(list(index), dtype=torch.long, device=self.positions_SK.device)
        return self._replace(
            keys=self.keys.pick(index),
            values=self.values.pick(index),
            positions_SK=self.positions_SK[at],
            weights_QSK=self.weights_QSK[:, at[at < self.weights_QSK.shape[1]]],
        )

    def choose(self, best_SK: Tensor) -> Kept:
        """The rows that each head has chosen."""
        return self._replace(
            keys=self.keys.choose(best_SK),
            values=self.values.choose(best_SK),
            positions_SK=self.positions_SK.gather(0, best_SK),
            weights_QSK=self.weights_QSK.gather(1, best_SK.expand(len(self.weights_QSK), -1, -1)),
        )
