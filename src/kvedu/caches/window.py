"""The window cache: constant memory. The last W tokens are held, and perhaps the first few (sinks).

Token i sees tokens i - W + 1 .. i and the sinks, whatever the size of the step it came in: W keys and
not W + 1, in a prompt, a chunk and alone.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor

from kvedu.caches.concat import ConcatCache
from kvedu.caches.contract import View
from kvedu.caches.dense import DenseView
from kvedu.caches.layout import Row
from kvedu.config import ModelConfig
from kvedu.errors import CacheError


class WindowView(DenseView):
    """Hides what is W or more positions back, but never a sink."""

    def window(self, layer: int) -> int:
        """The cache's window, or the model's own where that is narrower (it then hides sinks too)."""
        own = super().window(layer)
        return min(own, self.cache.window) if own else self.cache.window

    def visible(self, row: Row, window: int | None) -> Tensor:
        if (row.seq, window) not in self._visible:
            seen_TS = row.visible(window)
            if window == self.cache.window and self.cache.sinks:
                seen_TS |= row.visible() & (torch.tensor(row.positions) < self.cache.sinks)
            self._visible[row.seq, window] = seen_TS.to(self.cache.device)
        return self._visible[row.seq, window]


class WindowCache(ConcatCache):
    """The last ``window`` tokens of a sequence and its first ``sinks``, keys rotated at their place in the text.

    Without sinks this is attention with a sliding window (Mistral's, Beltagy et al. 2020), and gives a
    model that was trained with that window its own tokens. A sink's distance here grows with
    the text; ``StreamingCache`` keeps it bounded. ``length`` is the number of tokens held, ``seen`` of
    those that came. Tokens are let go when a step ends: during a step of N tokens
    sinks + window + N are held. Cost: a step copies what is held, O(window).

    Raises ``CacheError`` for a window below 1, negative sinks, and where a sequence that has let tokens go
    is cut: the window would then have to reach back to tokens that are no longer there.
    """

    view: type[View] = WindowView
    exceptions = {
        "keeps every token": "tokens that leave the window are let go; memory is constant because of it",
    }

    def __init__(self, config: ModelConfig, *, window: int, sinks: int = 0, **kwargs) -> None:
        super().__init__(config, **kwargs)
        if window < 1:
            raise CacheError(f"a window holds at least the token itself, so 1 or more, not {window}; for none use ConcatCache")
        if sinks < 0:
            raise CacheError(f"sinks counts the first tokens that stay: at least 0, not {sinks}")
        self.window, self.sinks = window, sinks

    def truncate(self, seq: int, length: int) -> None:
        """As the contract says, as long as no token was let go; a sequence may always start over (length 0)."""
        self._known(seq, "truncate")
        self._check_whole(seq, self._positions[seq][: max(length, 0)])
        super().truncate(seq, length)

    def keep(self, seq: int, indices: Sequence[int]) -> None:
        """A tree's accepted path; tokens held have no gaps between them but the one after the sinks."""
        super().keep(seq, indices)
        self._let_go(seq)

    def _compact(self, seq: int, indices: list[int]) -> None:
        old = self._positions[seq]
        self._check_whole(seq, [old[i] for i in indices])
        after_sinks = [i for i, p in enumerate(old[: self.sinks]) if p == self.sinks - 1]  # the one gap that there is
        gaps = [i for i, j in zip(indices, indices[1:]) if old[j] != old[i] + 1 and not (i in after_sinks and j == i + 1)]
        if gaps or indices[:1] not in ([], [0]):
            raise CacheError(f"a window holds neighbors: keep({indices[:8]} ...) would leave a gap inside it")
        super()._compact(seq, indices)

    def _check_whole(self, seq: int, kept: list[int]) -> None:
        """A window that has let tokens go must stay full."""
        if not kept or self.seen(seq) <= self.sinks + self.window:
            return
        n = sum(position >= self.sinks for position in kept)
        if n < self.window:
            raise CacheError(
                f"sequence {seq} has seen {self.seen(seq)} tokens and let some go; cut back, its window of {self.window} would "
                f"hold {n} and the others are gone. Start over (truncate to 0), or use a cache that keeps every token"
            )

    def _commit(self, view: View) -> None:
        super()._commit(view)
        for row in view.rows:
            if row.parents is None:  # of a tree only a path stays: keep() says which
                self._let_go(row.seq)

    def _let_go(self, seq: int) -> None:
        """Drop what no later token will see."""
        positions = self._positions[seq]
        stay = [i for i, p in enumerate(positions) if p < self.sinks or p > positions[-1] - self.window]
        if len(stay) < len(positions):
            super()._compact(seq, stay)
            self._positions[seq] = [positions[i] for i in stay]
