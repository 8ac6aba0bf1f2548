"""The last tokens of each sequence as they came, beside pages that hold them as codes."""

from __future__ import annotations

from typing import Mapping

import torch
from torch import Tensor

from kvedu.errors import CacheFull
from kvedu.kernels.paged_attention import paged_write
from kvedu.kernels.transfer import put

Part = tuple[int, int, int, int]
"""New tokens of one sequence: its id, their first row, tokens before them, tokens with them."""


class Tails:
    """Room for the last ``width`` tokens of ``count`` sequences; none at all, and no limit, where ``width`` is 0.

    ``tails[layer]`` are keys and values, ``[slots, width, K, D]`` each: token t of a sequence lies at [its slot, t % width].
    """

    def __init__(
        self,
        n_layers: int,
        count: int,
        width: int,
        vectors: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
        spare: bool = False,
    ) -> None:
        self.count, self.width = count, width
        self.spare = count if width else 0
        """The slot beside the sequences', where there is one: for rows that only fill a recorded step up."""
        shape = (count + spare if width else 1, width, vectors, length)
        self._pairs = [tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in "kv") for _ in range(n_layers)]
        self._slots: dict[int, int] = {}
        self._free = list(range(count))
        self.exact_from: dict[int, int] = {}
        """By sequence: the first token that is still held as it came, together with all later ones."""

    def __getitem__(self, layer: int) -> tuple[Tensor, Tensor]:
        return self._pairs[layer]

    @property
    def tensors(self) -> list[Tensor]:
        """What is stored."""
        return [x for pair in self._pairs for x in pair]

    def slot(self, seq: int) -> int:
        """Where a sequence's tail lies."""
        return self._slots[seq]

    def open(self, seq: int, exact_from: int = 0) -> None:
        """A tail for a new sequence. Raises ``CacheFull`` where there is none left."""
        if self.width and not self._free:
            raise CacheFull(f"all {self.count} tails are in use; free a sequence, or ask for more max_sequences")
        self._slots[seq] = self._free.pop() if self.width else 0
        self.exact_from[seq] = exact_from

    def close(self, seq: int) -> None:
        """Give it back."""
        slot = self._slots.pop(seq)
        if self.width:
            self._free.append(slot)
        del self.exact_from[seq]

    def copy(self, source: int, seq: int) -> None:
        """A fork begins with the same tail."""
        self.exact_from[seq] = self.exact_from[source]
        if self.width:
            for x in self.tensors:
                x[self._slots[seq]] = x[self._slots[source]]

    def keep(self, fresh: Mapping[int, tuple[Tensor, Tensor]], parts: list[Part]) -> None:
        """The last of what came, ``fresh`` by layer, ``[N, K, D]`` each; layers that are not in it were written by a recorded step."""
        W = self.width
        if not W or not parts:
            return
        rows, places = [], []
        for seq, first, start, total in parts:
            recent = range(max(start, total - W), total)
            rows += [first + t - start for t in recent]
            places += [self._slots[seq] * W + t % W for t in recent]
            self.exact_from[seq] = max(self.exact_from[seq], total - W)
        if not fresh:
            return
        index, slots = (put(x, self._pairs[0][0].device) for x in (rows, places))
        for layer, pair in enumerate(self._pairs):
            k_NKD, v_NKD = fresh[layer]
            if len(rows) < len(k_NKD):
                k_NKD, v_NKD = k_NKD[index], v_NKD[index]
            paged_write(k_NKD, v_NKD, *pair, slots)

    def read(self, layer: int, side: int, seq: int, first: int, stop: int) -> Tensor:
        """Tokens ``first`` .. ``stop`` - 1 of a sequence, ``[tokens, K, D]``; they must be there."""
        return self._pairs[layer][side][self._slots[seq], [t % self.width for t in range(first, stop)]]
