"""The evicting cache: a budget of tokens per layer and head, and a policy that says which ones.

One mechanism for all policies, at the end of each step: score what is held, keep the best, close
the gaps. Each KV head of each layer chooses for itself.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from kvedu.caches.contract import Cache, View, storage_bytes
from kvedu.caches.evicting_view import EvictingView
from kvedu.caches.scores import ALL, Held, Score
from kvedu.config import ModelConfig
from kvedu.errors import CacheError


class EvictingCache(Cache):
    """At most ``budget`` tokens per layer and KV head: ``sinks`` first, ``recent`` last, the best by ``score`` between.

    ``score`` is one of ``caches.scores`` or a function like them. During a step of N tokens
    budget + N are held, and every query sees them all; what is over is let go when the step ends. How a
    text is cut into steps therefore matters: a prompt in one step is judged once, with all of it in sight.
    ``length`` is the number of tokens each head holds, ``seen`` of those that came,
    ``positions`` says which they are. Cost: attention weights are written out, T S per head; a
    policy scores S tokens a step. Bytes: ``analysis.memory`` with ``held=budget`` and ``analysis.eviction``.

    Raises ``CacheError`` for a budget under sinks + recent, for a policy that looks at attention
    without saying so or returns another shape, and where a sequence that has evicted is cut.
    """

    view: type[View] = EvictingView
    exceptions = {
        "keeps every token": "tokens over the budget are evicted, and which ones depends on how the text was cut into steps",
    }

    def __init__(
        self, config: ModelConfig, *, budget: int, score: Score, sinks: int = 0, recent: int = 1, **kwargs
    ) -> None:
        super().__init__(config, **kwargs)
        if sinks < 0 or recent < 1:
            raise CacheError(f"sinks is at least 0 and recent (the last tokens, always kept) at least 1; got {sinks} and {recent}")
        if budget < sinks + recent:
            raise CacheError(
                f"a budget of {budget} tokens cannot hold {sinks} sinks and the last {recent}; give at least {sinks + recent}"
            )
        self.budget, self.score, self.sinks, self.recent = budget, score, sinks, recent
        self.queries: int = getattr(score, "queries", 0)
        self._held: dict[tuple[int, int], Held] = {}
        self._evicted: set[int] = set()
        self._try(score)

    def _try(self, score: Score) -> None:
        """Ask the policy once about made-up tokens, so that a wrong one is refused now and not when a step ends."""
        K, D, rows = self.config.K, self.config.D, abs(self.queries)
        x = torch.ones(3, K, D, dtype=self.dtype, device=self.device)
        positions = torch.arange(3, dtype=torch.int32, device=self.device)[:, None].expand(3, K)
        got = score(Held(x, x, positions, torch.ones(rows, 3, K, device=self.device)))
        if tuple(got.shape) != (3, K):
            raise CacheError(f"a policy returns one score per token and KV head; for 3 tokens and {K} heads got {tuple(got.shape)}")

    @property
    def nbytes(self) -> int:
        return storage_bytes([t for held in self._held.values() for t in held])

    def positions(self, seq: int, layer: int) -> Tensor:
        """Where in the text the tokens stand that each head of a layer holds: ``[S, K]``."""
        self._known(seq, None)
        return self._held[seq, layer].positions_SK

    def truncate(self, seq: int, length: int) -> None:
        """As the contract says, as long as nothing was evicted; a sequence may always start over (length 0)."""
        self._known(seq, "truncate")
        if 0 < length < len(self._positions[seq]):
            self._check_whole(seq, range(length))
        super().truncate(seq, length)
        if not length:
            self._evicted.discard(seq)

    def keep(self, seq: int, indices: Sequence[int]) -> None:
        """A tree's accepted path; index i is each head's own i-th token."""
        super().keep(seq, indices)
        self._evict(seq)

    def _check_whole(self, seq: int, indices: Sequence[int]) -> None:
        if seq in self._evicted and list(indices[: self.budget]) != list(range(self.budget)):
            raise CacheError(
                f"sequence {seq} has seen {self.seen(seq)} tokens and evicted some: cut back, its heads would lack tokens that they "
                "gave up for those now cut. Start over (truncate to 0), or use a cache that keeps every token"
            )

    def _allocate(self, seq: int, source: int | None) -> None:
        K, D = self.config.K, self.config.D
        for layer in range(self.n_layers):
            if source is not None:
                self._held[seq, layer] = self._held[source, layer]
                continue
            kv = torch.empty(2, 0, K, D, dtype=self.dtype, device=self.device)
            positions = torch.empty(0, K, dtype=torch.int32, device=self.device)
            weights = torch.empty(abs(self.queries), 0, K, device=self.device)  # one row for ALL
            self._held[seq, layer] = Held(*kv, positions, weights)
        if source in self._evicted:
            self._evicted.add(seq)

    def _drop(self, seq: int) -> None:
        for layer in range(self.n_layers):
            del self._held[seq, layer]
        self._evicted.discard(seq)

    def _write(self, view: View, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        for row in view.rows:
            held = self._held[row.seq, layer]
            new = view.positions[row.rows, None].to(torch.int32).expand(-1, self.config.K)
            self._held[row.seq, layer] = held._replace(
                k_SKD=torch.cat((held.k_SKD, k_NKD[row.rows].to(self.dtype))),
                v_SKD=torch.cat((held.v_SKD, v_NKD[row.rows].to(self.dtype))),
                positions_SK=torch.cat((held.positions_SK, new)),
            )

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        held = self._held[seq, layer]
        return held.k_SKD[:length], held.v_SKD[:length]

    def _shrink(self, seq: int, length: int) -> None:
        for layer in range(self.n_layers):
            k, v, positions, weights = self._held[seq, layer]
            if len(k) > length:
                weights = weights[:, :length].clone()
                self._held[seq, layer] = Held(k[:length].clone(), v[:length].clone(), positions[:length].clone(), weights)

    def _compact(self, seq: int, indices: list[int]) -> None:
        self._check_whole(seq, indices)
        index = torch.tensor(indices, dtype=torch.long, device=self.device)
        for layer in range(self.n_layers):
            k, v, positions, weights = self._held[seq, layer]
            self._held[seq, layer] = Held(k[index], v[index], positions[index], weights[:, index])

    def _commit(self, view: EvictingView) -> None:
        super()._commit(view)
        for row in view.rows:
            for layer in range(self.n_layers):
                held = self._held[row.seq, layer]
                self._held[row.seq, layer] = held._replace(weights_QSK=_updated(held, view.watched.get((row.seq, layer)), self.queries))
            if row.parents is None:  # of a tree only a path stays: keep() says which
                self._evict(row.seq)

    def _evict(self, seq: int) -> None:
        """Score, keep, compact: where more than the budget is held."""
        excess = len(self._positions[seq]) - self.budget
        if excess <= 0:
            return
        for layer in range(self.n_layers):
            held = self._held[seq, layer]
            score_SK = self.score(held).to(torch.float32).clone()
            score_SK[: self.sinks] = torch.inf
            score_SK[len(score_SK) - self.recent :] = torch.inf
            best_SK = score_SK.argsort(dim=0, stable=True)[excess:].sort(dim=0).values  # of equals the later ones
            self._held[seq, layer] = _chosen(held, best_SK)
        self._positions[seq] = self._positions[seq][excess:]  # as many as are held; the last one is
        self._evicted.add(seq)


def _updated(held: Held, new_QSK: Tensor | None, queries: int) -> Tensor:
    """Kept weights after a step: room for the new tokens, and what the new queries looked at."""
    old_QSK = pad(held.weights_QSK, (0, 0, 0, len(held.k_SKD) - held.weights_QSK.shape[1]))
    if new_QSK is None:
        return old_QSK
    return old_QSK + new_QSK if queries == ALL else torch.cat((old_QSK, new_QSK))[-queries:].clone()


def _chosen(held: Held, best_SK: Tensor) -> Held:
    """The rows that each head has chosen."""
    k, v, positions, weights = held
    wide_SKD = best_SK[..., None].expand(-1, -1, k.shape[-1])
    return Held(
        k.gather(0, wide_SKD),
        v.gather(0, wide_SKD),
        positions.gather(0, best_SK),
        weights.gather(1, best_SK.expand(len(weights), -1, -1)),
    )
