"""The evicting cache: a budget of tokens per layer and head, and a policy that says which ones.

One mechanism for all policies, at the end of each step: score what is held, keep the best, close
the gaps. Each KV head of each layer chooses for itself.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from kvedu.caches.budgets import Budget, Part, parts_of
from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.evicting_rows import Kept, Side
from kvedu.caches.evicting_view import EvictingView
from kvedu.caches.formats import Format
from kvedu.caches.moments import Moments
from kvedu.caches.scores import Held, Score
from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import CacheError


class EvictingCache(Cache):
    """At most ``budget`` tokens per layer and KV head: ``sinks`` first, ``recent`` last, the best by ``score`` between.

    ``budget`` is one number, or one per layer (``analysis.eviction.pyramid_budgets``), or one per layer and KV head.
    ``score`` is one of ``caches.scores`` or a function like them. ``keys`` and ``values``, formats of
    ``caches.formats`` with groups along the head, store what is kept as codes. During a step of N tokens
    budget + N are held, and every query sees them all; what is over is let go when the step ends. How a
    text is cut into steps therefore matters: a prompt in one step is judged once, with all of it in sight.
    ``length`` is the number of tokens that the largest budget holds, ``seen`` of those that came,
    ``positions`` says which they are. Cost: attention weights are written out, T S per head; a
    policy scores S tokens a step. Bytes: ``analysis.memory`` with ``held=budget`` and ``analysis.eviction``.

    Raises ``CacheError`` for a budget under sinks + recent, for a policy that looks at attention or queries
    without saying so or returns another shape, for a format whose groups eviction would tear, and where a sequence
    that has evicted is cut.
    """

    view: type[View] = EvictingView
    any_value_width = True
    exceptions = {
        "keeps every token": "tokens over the budget are evicted, and which ones depends on how the text was cut into steps",
    }

    def __init__(
        self,
        config: ModelConfig,
        *,
        budget: Budget,
        score: Score,
        sinks: int = 0,
        recent: int = 1,
        keys: Format | None = None,
        values: Format | None = None,
        **kwargs,
    ) -> None:
        super().__init__(config, **kwargs)
        if sinks < 0 or recent < 1:
            raise CacheError(f"sinks is at least 0 and recent (the last tokens, always kept) at least 1; got {sinks} and {recent}")
        self.parts = parts_of(budget, self.n_layers, config.K, sinks + recent, f"{sinks} sinks and the last {recent}")
        self.score, self.sinks, self.recent = score, sinks, recent
        self.queries: int = getattr(score, "queries", 0)
        self.wants_moments: bool = getattr(score, "moments", False)
        self.formats = keys, values
        for format, width in zip(self.formats, (config.D, config.Dv)):
            if format is not None:
                _check_format(format, width)
        self._kept: dict[tuple[int, Part], Kept] = {}
        self._whole: dict[int, int] = {}
        """Of a sequence that has evicted, how many of its first tokens must stay for its heads to be full."""
        self._try(score)

    def _try(self, score: Score) -> None:
        """Ask the policy once about made-up tokens, so that a wrong one is refused now and not when a step ends."""
        config, K, rows = self.config, self.config.K, abs(self.queries)
        k, v = (torch.ones(3, K, width, dtype=self.dtype, device=self.device) for width in (config.D, config.Dv))
        positions = torch.arange(3, dtype=torch.int32, device=self.device)[:, None].expand(3, K)
        moments = Moments.none(K, config.G, config.D, self.device) if self.wants_moments else None
        got = score(Held(k, v, positions, torch.ones(rows, 3, K, device=self.device), moments))
        if tuple(got.shape) != (3, K):
            raise CacheError(f"a policy returns one score per token and KV head; for 3 tokens and {K} heads got {tuple(got.shape)}")

    @property
    def budget(self) -> int:
        """The largest budget of all heads, in tokens."""
        return max(part.budget for part in self.parts)

    @property
    def nbytes(self) -> int:
        return storage_bytes([t for kept in self._kept.values() for t in kept.tensors])

    def parts_in(self, layer: int) -> list[Part]:
        """The groups of a layer's KV heads that have a budget in common."""
        return [part for part in self.parts if part.layer == layer]

    def kept(self, seq: int, part: Part) -> Kept:
        """What the heads of a part hold of a sequence."""
        self._known(seq, None)
        return self._kept[seq, part]

    def held(self, seq: int, layer: int) -> Held:
        """What a policy is shown of a layer whose heads have one budget (of several, those of the first)."""
        return _shown(self.kept(seq, self.parts_in(layer)[0]))

    def positions(self, seq: int, layer: int) -> Tensor:
        """Where in the text the tokens stand that each head of a layer holds: ``[S, K]``, -1 where a head holds fewer."""
        self._known(seq, None)
        return self.spread(layer, {part: self._kept[seq, part].positions_SK for part in self.parts_in(layer)}, -1)

    def spread(self, layer: int, rows: dict[Part, Tensor], fill: int = 0) -> Tensor:
        """Rows ``[S, heads, …]`` of a layer's parts as one tensor ``[S, K, …]``, shorter ones behind ``fill``."""
        if len(rows) == 1:
            return next(iter(rows.values()))
        most, any_ = max(map(len, rows.values())), next(iter(rows.values()))
        out = any_.new_full((most, self.config.K, *any_.shape[2:]), fill)
        for part, x in rows.items():
            out[most - len(x) :, list(part.heads)] = x
        return out

    def truncate(self, seq: int, length: int) -> None:
        """As the contract says, as long as nothing was evicted; a sequence may always start over (length 0).

        What a policy noted of the queries that are forgotten is forgotten only then.
        """
        self._known(seq, "truncate")
        if 0 < length < len(self._positions[seq]):
            self._check_whole(seq, range(length))
        super().truncate(seq, length)
        if not length:
            self._whole.pop(seq, None)
            for part in self.parts:
                self._kept[seq, part] = self._empty(part)

    def keep(self, seq: int, indices: Sequence[int]) -> None:
        """A tree's accepted path; index i is each head's own i-th token, counted in the largest budget."""
        super().keep(seq, indices)
        self._evict(seq)

    def _check_whole(self, seq: int, indices: Sequence[int]) -> None:
        whole = self._whole.get(seq, 0)
        if list(indices[:whole]) != list(range(whole)):
            raise CacheError(
                f"sequence {seq} has seen {self.seen(seq)} tokens and evicted some: cut back, its heads would lack tokens that they "
                "gave up for those now cut. Start over (truncate to 0), or use a cache that keeps every token"
            )

    def _empty(self, part: Part) -> Kept:
        config, K, device = self.config, len(part.heads), self.device
        keys, values = (
            Side.empty(format, K, width, self.dtype, device) for format, width in zip(self.formats, (config.D, config.Dv))
        )
        positions = torch.empty(0, K, dtype=torch.int32, device=device)
        weights = torch.empty(abs(self.queries), 0, K, device=device)  # one row for ALL
        moments = Moments.none(K, config.G, config.D, device) if self.wants_moments else None
        return Kept(keys, values, positions, weights, moments)

    def _allocate(self, seq: int, source: int | None) -> None:
        for part in self.parts:
            self._kept[seq, part] = self._empty(part) if source is None else self._kept[source, part]
        if source in self._whole:
            self._whole[seq] = self._whole[source]

    def _drop(self, seq: int) -> None:
        for part in self.parts:
            del self._kept[seq, part]
        self._whole.pop(seq, None)

    def _write(self, view: EvictingView, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        for row in view.rows:
            for part in self.parts_in(layer):
                kept = view.before[row.seq, part] = self._kept[row.seq, part]
                k_TKD, v_TKD = (x[row.rows] if part.all else x[row.rows][:, list(part.heads)] for x in (k_NKD, v_NKD))
                self._kept[row.seq, part] = kept.join(k_TKD, v_TKD, view.positions[row.rows])

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        parts = self.parts_in(layer)
        k_SKD = self.spread(layer, {part: self._kept[seq, part].keys.dense() for part in parts})
        v_SKD = self.spread(layer, {part: self._kept[seq, part].values.dense() for part in parts})
        return k_SKD[:length], v_SKD[:length]

    def _rollback(self, view: EvictingView) -> None:
        self._kept |= view.before

    def _shrink(self, seq: int, length: int) -> None:
        self._pick(seq, range(length))

    def _compact(self, seq: int, indices: list[int]) -> None:
        self._check_whole(seq, indices)
        self._pick(seq, indices)

    def _pick(self, seq: int, indices: Sequence[int]) -> None:
        """These tokens, counted in the largest budget; a smaller one has let go of the first, which all stay or all go."""
        total = len(self._positions[seq])
        for part in self.parts:
            kept = self._kept[seq, part]
            gone = total - kept.n
            self._kept[seq, part] = kept.pick([i - gone for i in indices if i >= gone])

    def _commit(self, view: EvictingView) -> None:
        super()._commit(view)
        for row in view.rows:
            for part in self.parts:
                kept = self._kept[row.seq, part].noted(view.watched.get((row.seq, part)), self.queries)
                self._kept[row.seq, part] = kept._replace(moments=view.moments.get((row.seq, part), kept.moments))
            if row.parents is None:  # of a tree only a path stays: keep() says which
                self._evict(row.seq)

    def _evict(self, seq: int) -> None:
        """Score, keep, compact: where more than the budget is held."""
        for part in self.parts:
            kept = self._kept[seq, part]
            excess = kept.n - part.budget
            if excess > 0:
                score_SK = self.score(_shown(kept)).to(torch.float32).clone()
                score_SK[: self.sinks] = torch.inf
                score_SK[len(score_SK) - self.recent :] = torch.inf
                best_SK = score_SK.argsort(dim=0, stable=True)[excess:].sort(dim=0).values  # of equals the later ones
                kept = kept.settled().choose(best_SK)
                self._whole[seq] = 0  # said below
            self._kept[seq, part] = kept.settled()
        if self._whole.get(seq) == 0:
            most = max(self._kept[seq, part].n for part in self.parts)
            self._positions[seq] = self._positions[seq][len(self._positions[seq]) - most :]  # as many as are held; the last one is
            self._whole[seq] = most


def _shown(kept: Kept) -> Held:
    """What a policy sees: numbers, also where codes are stored."""
    weights = pad(kept.weights_QSK, (0, 0, 0, kept.n - kept.weights_QSK.shape[1]))
    return Held(kept.keys.dense(), kept.values.dense(), kept.positions_SK, weights, kept.moments)


def _check_format(format: Format, width: int) -> None:
    """Codes that a token can leave alone, and that need no channels of each head to be known."""
    if format.along == "tokens":
        raise CacheError(
            f"a group of {format.group} tokens shares a scale, and eviction takes single tokens out of it: what is left could "
            'not be decoded by itself. Use along="head", where each token has its scales to itself'
        )
    if format.apart:
        raise CacheError("channels set apart are not kept by an evicting cache; use a plain or a rotated format, or QuantizedCache")
    format.check_head(width)
