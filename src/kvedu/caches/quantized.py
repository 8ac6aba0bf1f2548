"""The quantized cache: old keys and values as codes, the last ones in full precision.

How many tokens are coded is a function of how many there are: all but the last ``residual``,
rounded down to whole groups. A token that is decoded alone is coded like one of a prompt, and how tokens
were split into steps leaves no trace in the codes.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import Cache, storage_bytes
from kvedu.caches.dense import DenseView
from kvedu.caches.formats import Format, integer
from kvedu.caches.kv_format import checked_apart
from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import CacheError
from kvedu.kernels.codes import Coded, decode, empty, encode


class Side(NamedTuple):
    """Keys or values of one sequence and layer: coded tokens, then the tail ``[S, K, D]``. Never written in place."""

    coded: Coded
    tail: Tensor

    def coded_tokens(self, format: Format) -> int:
        """Tokens that are held as codes."""
        return len(self.coded.codes) * format.step


class QuantizedCache(Cache):
    """Any format for keys and any for values, with the last ``residual`` tokens exact.

    ``apart`` says which key channels a format that sets some apart means, int64 ``[L, K, n]`` (``caches.outliers``).

    Between steps the exact tail holds ``residual`` to ``residual + step - 1`` tokens (fewer while
    fewer have come), where step is the group of a format along the tokens, else 1. Attention
    decodes everything it reads, so a step costs O(S) more work than a plain cache's: this is the cache to
    read and to measure loss with; ``PagedQuantizedCache`` attends over the codes themselves. Coding happens when a step ends: until then its N
    tokens are held in full, so bring long prompts in chunks. Coding copies the codes that are there
    already, O(S), and a fork shares everything at no cost.

    Raises ``CacheError`` for a group that does not divide the head, a negative residual, channels to set apart that
    are not those of the format, and for cutting or thinning out tokens that share a scale.
    """

    view = DenseView
    exceptions = {
        "keeps exact values": "tokens before the tail come back rounded to their format",
        "truncates as if never appended": (
            "what was coded stays coded, so the tail is shorter until it has grown again; a cut through a group "
            "of tokens that share a scale is refused"
        ),
    }

    def __init__(
        self,
        config: ModelConfig,
        *,
        keys: Format,
        values: Format,
        residual: int = 0,
        apart: Tensor | None = None,
        **kwargs,
    ) -> None:
        super().__init__(config, **kwargs)
        if residual < 0:
            raise CacheError(f"residual counts the last tokens kept exact: at least 0, not {residual}")
        self.formats, self.residual = (keys, values), residual
        for format in self.formats:
            format.check_head(config.D)
        self.apart = checked_apart(apart, keys, values, self.n_layers, config, self.device)
        self._sides: dict[tuple[int, int], tuple[Side, Side]] = {}

    @classmethod
    def kivi(cls, config: ModelConfig, bits: int = 2, group: int = 32, residual: int = 128, **kwargs) -> QuantizedCache:
        """KIVI: asymmetric, keys per channel (grouped along the tokens), values per token (along the head).

        The paper's tail of keys is emptied whenever it is ``residual`` long; here it never holds fewer
        than ``residual`` tokens, as its tail of values does. Source: Liu et al. 2024, KIVI; their
        G is our ``group``, their R our ``residual``.
        """
        return cls(config, keys=integer(bits, group, "tokens"), values=integer(bits, group), residual=residual, **kwargs)

    @property
    def nbytes(self) -> int:
        held = [t for pair in self._sides.values() for side in pair for t in (*side.coded.tensors, side.tail)]
        return storage_bytes(held if self.apart is None else [*held, self.apart])

    def coded_tokens(self, seq: int) -> tuple[int, int]:
        """How many tokens of a sequence are coded: keys, values."""
        self._known(seq, None)
        keys, values = (side.coded_tokens(f) for side, f in zip(self._sides[seq, 0], self.formats))
        return keys, values

    def _allocate(self, seq: int, source: int | None) -> None:
        K, D = self.config.K, self.config.D
        for layer in range(self.n_layers):
            if source is not None:
                self._sides[seq, layer] = self._sides[source, layer]
                continue
            tail = torch.empty(0, K, D, dtype=self.dtype, device=self.device)
            keys, values = (Side(empty(f, K, D, self.device), tail) for f in self.formats)
            self._sides[seq, layer] = (keys, values)

    def _drop(self, seq: int) -> None:
        for layer in range(self.n_layers):
            del self._sides[seq, layer]

    def _write(self, view: View, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        for row in view.rows:
            keys, values = self._sides[row.seq, layer]
            self._sides[row.seq, layer] = (
                keys._replace(tail=torch.cat((keys.tail, k_NKD[row.rows].to(self.dtype)))),
                values._replace(tail=torch.cat((values.tail, v_NKD[row.rows].to(self.dtype)))),
            )

    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        k_SKD, v_SKD = (
            torch.cat((decode(side.coded, f, self.config.D, self.dtype, self._apart(layer)), side.tail))[:length]
            for side, f in zip(self._sides[seq, layer], self.formats)
        )
        return k_SKD, v_SKD

    def _commit(self, view: View) -> None:
        super()._commit(view)
        for row in view.rows:
            if row.parents is None:  # of a tree only a path stays: coded when keep() has said which
                self._code(row.seq, len(self._positions[row.seq]))

    def _code(self, seq: int, length: int) -> None:
        """Code what has left the tail of a sequence of ``length`` tokens."""
        for layer in range(self.n_layers):
            pair = zip(self._sides[seq, layer], self.formats)
            keys, values = (self._coded(side, f, length, self._apart(layer)) for side, f in pair)
            self._sides[seq, layer] = (keys, values)

    def _apart(self, layer: int) -> Tensor | None:
        return None if self.apart is None else self.apart[layer]

    def _coded(self, side: Side, format: Format, length: int, apart_Kn: Tensor | None) -> Side:
        coded = side.coded_tokens(format)
        more = (max(0, length - self.residual) - coded) // format.step * format.step
        if more <= 0:
            return side
        return Side(side.coded.join(encode(side.tail[:more], format, apart_Kn)), side.tail[more:].clone())

    def _shrink(self, seq: int, length: int) -> None:
        self._pick(seq, range(length))

    def _compact(self, seq: int, indices: list[int]) -> None:
        self._pick(seq, indices)
        self._code(seq, len(indices))

    def _pick(self, seq: int, indices: Sequence[int]) -> None:
        """Keep these of the tokens that are there: coded ones by whole units, exact ones one by one."""
        units = [self._units(side.coded_tokens(f), f, indices) for side, f in zip(self._sides[seq, 0], self.formats)]
        for layer in range(self.n_layers):
            sides = []
            for side, format, unit in zip(self._sides[seq, layer], self.formats, units):
                first, n = side.coded_tokens(format), len(side.tail)
                tail = [i - first for i in indices if first <= i < first + n]
                coded = side.coded if len(unit) == len(side.coded.codes) else side.coded.take(self._index(unit))
                sides.append(Side(coded, side.tail if len(tail) == n else side.tail[self._index(tail)]))
            self._sides[seq, layer] = (sides[0], sides[1])

    def _index(self, places: list[int]) -> Tensor:
        return torch.tensor(places, dtype=torch.long, device=self.device)

    @staticmethod
    def _units(coded: int, format: Format, indices: Sequence[int]) -> list[int]:
        """Coded units that these tokens make up; ``CacheError`` where they split a group."""
        kept = [i for i in indices if i < coded]
        units = kept[:: format.step]
        if format.step > 1 and kept != [i for unit in units for i in range(unit, unit + format.step)] or any(
            unit % format.step for unit in units
        ):
            raise CacheError(
                f"the first {coded} tokens are coded in groups of {format.step} that share a scale; a group stays or goes "
                f'as a whole. Cut at a multiple of {format.step}, use a longer residual, or a format along="head"'
            )
        return [unit // format.step for unit in units]
