"""Bytes of quantized keys and values: the codes, and the scales that are easily forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from kvedu.errors import KveduError


@dataclass(frozen=True)
class Quantized:
    """Integers of a few bits, with one scale (and perhaps one zero point) per group of neighbors.

    ``along="head"``: a group is ``group`` neighbors of one token's vector ("per token" in
    papers; a group of D gives one scale per token and head). ``along="tokens"``: a group is one
    channel over ``group`` consecutive tokens ("per channel"). The last group may be short and
    still has its scale. ``zero_bytes`` is 0 for symmetric codes; ``apart_bytes`` is what is kept of each vector
    beside its codes (a few channels in full precision).

    Raises ``KveduError`` for sizes that no such format has.
    Source: KIVI (Liu et al. 2024) stores keys along tokens and values along the head, group 32.

    >>> int4 = Quantized(bits=4, group=32, scale_bytes=2, zero_bytes=2)
    >>> int4.bits_per_element          # 4 bits of code + 32 bits of scale and zero for 32 elements
    5.0
    >>> int4.bytes_of(tokens=1, vectors=1, length=64)    # 32 bytes of codes + 2 groups x 4 bytes
    40
    """

    bits: int
    group: int
    scale_bytes: int = 2
    zero_bytes: int = 0
    along: str = "head"
    apart_bytes: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise KveduError(f"codes have 1 to 8 bits, not {self.bits}; plain 16-bit storage needs no Quantized")
        if self.group < 1:
            raise KveduError(f"a group has at least 1 element, not {self.group}")
        if min(self.scale_bytes, self.zero_bytes, self.apart_bytes) < 0:
            raise KveduError(
                f"scale, zero point and what is kept apart take {self.scale_bytes}, {self.zero_bytes} and "
                f"{self.apart_bytes} bytes: not negative"
            )
        if self.along not in ("head", "tokens"):
            raise KveduError(f'along is "head" (per token) or "tokens" (per channel), not {self.along!r}')

    @property
    def bits_per_element(self) -> float:
        """Stored bits per element, scales and zero points included, when every group is full; ``apart_bytes`` come on top."""
        return self.bits + 8 * (self.scale_bytes + self.zero_bytes) / self.group

    def coded(self, tokens: int, residual: int) -> int:
        """Tokens held as codes where the last ``residual`` ones, and what fills no group, stay in full precision.

        >>> Quantized(bits=2, group=32, along="tokens").coded(tokens=200, residual=128)    # 72 could be; 64 fill groups
        64
        """
        step = self.group if self.along == "tokens" else 1
        return max(0, tokens - residual) // step * step

    def bytes_of(self, tokens: int, vectors: int, length: int) -> int:
        """Bytes of ``tokens`` x ``vectors`` vectors of ``length`` elements.

        Codes are packed along the grouped axis, each run of it padded to a whole byte.
        """
        runs, size = (tokens * vectors, length) if self.along == "head" else (vectors * length, tokens)
        groups = -(-size // self.group)
        apart = tokens * vectors * self.apart_bytes
        return runs * (-(-size * self.bits // 8) + groups * (self.scale_bytes + self.zero_bytes)) + apart
