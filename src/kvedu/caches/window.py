"""The window cache: constant memory. The last W tokens are held, and perhaps the first few (sinks).

Token i sees tokens i - W + 1 .. i and the sinks, whatever the size of the step it came in: W keys and
not W + 1, in a prompt, a chunk and alone. They lie in a ring (``caches.ring``): a decoded token is written
over the one that has just left, and attention reads the ring where it lies.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.layout import Row
from kvedu.caches.ring import Ring, places
from kvedu.caches.view import View
from kvedu.caches.window_view import WindowView
from kvedu.config import ModelConfig
from kvedu.errors import CacheError


class Overwritten(NamedTuple):
    """What a decoded token was written over, should the step fail: the place, and its key and value before."""

    slot: Tensor
    k_1KD: Tensor
    v_1KD: Tensor


class WindowCache(Cache):
    """The last ``window`` tokens of a sequence and its first ``sinks``, keys rotated at their place in the text.

    Without sinks this is attention with a sliding window (Mistral's, Beltagy et al. 2020), and gives a
    model that was trained with that window its own tokens. A sink's distance here grows with
    the text; ``StreamingCache`` keeps it bounded. ``length`` is the number of tokens held, ``seen`` of
    those that came. Memory: sinks + window tokens a sequence, taken when it opens (``analysis.memory`` with
    ``held=``), and the new tokens of a step while it runs. Cost: a decoded token is one write in place; a
    chunk of N copies the window once to lay it before the chunk.

    Raises ``CacheError`` for a window below 1, negative sinks, a step after a tree of which ``keep`` has not
    chosen a path, and where a sequence that has let tokens go is cut: the window would then have to reach back
    to tokens that are no longer there.
    """

    view: type[View] = WindowView
    any_value_width = True
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
        self._rings: dict[tuple[int, int], Ring] = {}
        self._ringed: dict[int, int] = {}  # of a sequence's tokens the first so many lie in the ring, the others in the tail
        self._tails: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # a step's own tokens, or a tree's until keep()
        self._undo: dict[tuple[int, int], Overwritten] = {}

    @property
    def nbytes(self) -> int:
        return storage_bytes([t for kv in (*self._rings.values(), *self._tails.values()) for t in kv])

    def truncate(self, seq: int, length: int) -> None:
        """As the contract says, as long as no token was let go; a sequence may always start over (length 0)."""
        self._known(seq, "truncate")
        self._check_whole(seq, self._positions[seq][: max(length, 0)])
        super().truncate(seq, length)
        left = self._positions[seq]
        if all(a < b for a, b in zip(left, left[1:])):  # a chain, as what is left of a tree may be
            self._let_go(seq)

    def keep(self, seq: int, indices: Sequence[int]) -> None:
        """A tree's accepted path; tokens held have no gaps between them but the one after the sinks."""
        super().keep(seq, indices)
        self._let_go(seq)

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

    def _allocate(self, seq: int, source: int | None) -> None:
        for layer in range(self.n_layers):
            if source is None:
                config, size = self.config, self.sinks + self.window
                ring = Ring.empty(size, config.K, config.D, config.Dv, self.dtype, self.device)
            else:
                ring = self._rings[source, layer].copy()
            self._rings[seq, layer] = ring
            if (source, layer) in self._tails:
                self._tails[seq, layer] = self._tails[source, layer]
        self._ringed[seq] = 0 if source is None else self._ringed[source]

    def _drop(self, seq: int) -> None:
        for layer in range(self.n_layers):
            del self._rings[seq, layer]
            self._tails.pop((seq, layer), None)
        del self._ringed[seq]

    def _reserve(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if row.start > self._ringed[row.seq]:
                raise CacheError(
                    f"sequence {row.seq} ends in a tree of {row.start - self._ringed[row.seq]} tokens; say with keep() which "
                    "path stays before it goes on: a window is laid over a chain of tokens"
                )

    def alone(self, row: Row) -> bool:
        """Whether a row's new token can take its place in the ring at once: one that nobody in its step sees otherwise."""
        return row.count == 1 and row.parents is None

    def in_ring(self, row: Row) -> int:
        """How many of a row's tokens, committed and new, lie in the ring during its step."""
        return row.start + self.alone(row)

    def _slots(self, positions: Sequence[int]) -> Tensor:
        return torch.tensor(places(positions, self.sinks, self.window), dtype=torch.long, device=self.device)

    def _write(self, view: View, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        for row in view.rows:
            k, v = k_NKD[row.rows].to(self.dtype), v_NKD[row.rows].to(self.dtype)
            if self.alone(row):
                ring, slot = self._rings[row.seq, layer], self._slots(row.new)
                self._undo[row.seq, layer] = Overwritten(slot, *ring.rows(slot))
                ring.write(slot, k, v)
            else:
                self._tails[row.seq, layer] = k.clone(), v.clone()

    def stored(self, layer: int, row: Row) -> tuple[Tensor, Tensor]:
        """A row's keys and values as they lie: the ring's places that are in use, then the tail."""
        ring, used = self._rings[row.seq, layer], min(self.in_ring(row), self.sinks + self.window)
        k_SKD, v_SKD = (x[:used] for x in ring)
        if self.alone(row):
            return k_SKD, v_SKD
        tail = self._tails[row.seq, layer]
        return torch.cat((k_SKD, tail[0])), torch.cat((v_SKD, tail[1]))

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        """In the order of the text; a token that a running step has just written over is still there."""
        positions, undo = self._positions[seq], self._undo.get((seq, layer))
        n = self._ringed[seq]
        slots = self._slots(positions[: min(length, n)])
        k_SKD, v_SKD = self._rings[seq, layer].rows(slots)
        if undo is not None:
            old = (slots == undo.slot).nonzero()[:, 0]
            new = self._rings[seq, layer].rows(undo.slot)
            k_SKD[old], v_SKD[old] = undo.k_1KD, undo.v_1KD
            k_SKD, v_SKD = torch.cat((k_SKD, new[0])), torch.cat((v_SKD, new[1]))
        elif (seq, layer) in self._tails:
            k_SKD, v_SKD = (torch.cat(pair) for pair in zip((k_SKD, v_SKD), self._tails[seq, layer]))
        return k_SKD[:length], v_SKD[:length]

    def _shrink(self, seq: int, length: int) -> None:
        n = self._ringed[seq]
        for layer in range(self.n_layers):
            if undo := self._undo.pop((seq, layer), None):
                self._rings[seq, layer].write(*undo)
            if (seq, layer) in self._tails:
                k, v = self._tails[seq, layer]
                if length <= n:
                    del self._tails[seq, layer]
                else:
                    self._tails[seq, layer] = k[: length - n].clone(), v[: length - n].clone()
        self._ringed[seq] = min(n, length)

    def _compact(self, seq: int, indices: list[int]) -> None:
        old = self._positions[seq]
        self._check_whole(seq, [old[i] for i in indices])
        after_sinks = [i for i, p in enumerate(old[: self.sinks]) if p == self.sinks - 1]  # the one gap that there is
        gaps = [i for i, j in zip(indices, indices[1:]) if old[j] != old[i] + 1 and not (i in after_sinks and j == i + 1)]
        if gaps or indices[:1] not in ([], [0]):
            raise CacheError(f"a window holds neighbors: keep({indices[:8]} ...) would leave a gap inside it")
        n = self._ringed[seq]
        picked = torch.tensor([i - n for i in indices if i >= n], dtype=torch.long, device=self.device)
        for layer in range(self.n_layers):
            if (seq, layer) in self._tails:
                k, v = self._tails[seq, layer]
                self._tails[seq, layer] = k[picked], v[picked]
        self._ringed[seq] = sum(i < n for i in indices)

    def _commit(self, view: View) -> None:
        super()._commit(view)
        self._undo.clear()
        for row in view.rows:
            if self.alone(row):
                self._ringed[row.seq] += 1
            if row.parents is None:  # of a tree only a path stays: keep() says which
                self._let_go(row.seq)

    def _let_go(self, seq: int) -> None:
        """Lay what is still in the tail into the ring, and forget what no later token will see."""
        positions = self._positions[seq]
        stay = [i for i, p in enumerate(positions) if p < self.sinks or p > positions[-1] - self.window]
        late = [i for i in stay if i >= self._ringed[seq]]
        if late:
            slots = self._slots([positions[i] for i in late])
            picked = torch.tensor(late, device=self.device) - self._ringed[seq]
            for layer in range(self.n_layers):
                k, v = self._tails[seq, layer]
                self._rings[seq, layer].write(slots, k[picked], v[picked])
        for layer in range(self.n_layers):
            self._tails.pop((seq, layer), None)
        self._positions[seq] = [positions[i] for i in stay]
        self._ringed[seq] = len(stay)
