"""Formats of quantized keys and values: how many bits, who shares a scale, and what a scale is stored in.

A format says what is stored; ``kernels/codes`` turns numbers into it and back; ``analysis.quantized``
counts its bytes. Papers say "per token" for a group along the head (one token's neighbors share a
scale) and "per channel" for a group along the tokens (one channel's neighbors in time do).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kvedu.analysis.quantized import Quantized
from kvedu.errors import CacheError
from kvedu.kernels.codes import FLOAT8
from kvedu.kernels.hadamard import block_of


@dataclass(frozen=True)
class Format:
    """One side (keys or values) of a quantized cache; make one with ``integer`` or ``float8``.

    ``group`` None means no scale at all (float8 only). ``symmetric`` codes are -m .. m times a
    scale; asymmetric ones 0 .. 2**bits - 1 times a scale, counted from the group's lowest value,
    which is stored as the zero point. ``apart`` channels of each head are stored in ``scale_dtype``
    beside the codes, which then need not reach them (the cache is told which); ``rotated`` numbers are turned by
    a Hadamard matrix before they are coded, so that no channel stands out.
    """

    kind: str
    bits: int
    group: int | None
    along: str
    symmetric: bool
    scale_dtype: torch.dtype = torch.float16
    apart: int = 0
    rotated: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("int", *FLOAT8):
            raise CacheError(f'there is no format {self.kind!r}; known are "int", "e4m3" and "e5m2"')
        if self.bits not in ((2, 4, 8) if self.kind == "int" else (8,)):
            raise CacheError(f"{self.kind} codes of {self.bits} bits: integers have 2, 4 or 8 bits, floats 8")
        if self.along not in ("head", "tokens"):
            raise CacheError(f'along is "head" (per token) or "tokens" (per channel), not {self.along!r}')
        if self.scale_dtype not in (torch.float16, torch.bfloat16, torch.float32):
            raise CacheError(f"scales are stored in float16, bfloat16 or float32, not {self.scale_dtype}")
        if self.group is None:
            if self.kind == "int":
                raise CacheError("integers mean nothing without a scale: give a group")
            if self.along == "tokens":
                raise CacheError('without scales there is no group to lay along the tokens: use along="head"')
        elif self.group < 1:
            raise CacheError(f"a group has at least 1 element, not {self.group}")
        elif self.along == "tokens" and self.group * self.bits % 8:
            raise CacheError(
                f"a group of {self.group} tokens in {self.bits} bits does not fill whole bytes; "
                f"use a multiple of {8 // self.bits} tokens"
            )

        if self.apart < 0:
            raise CacheError(f"{self.apart} channels set apart: at least 0")
        if self.apart and (self.rotated or self.along == "tokens"):
            raise CacheError(
                'channels are set apart where they share a scale with others: along="head", not rotated. Along the '
                "tokens each channel has a scale of its own already, and a rotation leaves none that stands out"
            )

    @property
    def step(self) -> int:
        """Tokens that are coded together: a whole group along the tokens, else one."""
        return self.group if self.along == "tokens" else 1

    @property
    def sized(self) -> Quantized:
        """The same format as ``analysis.memory`` counts it."""
        size = self.scale_dtype.itemsize
        if self.group is None:
            return Quantized(bits=8, group=1, scale_bytes=0, apart_bytes=self.apart * size)
        return Quantized(
            self.bits, self.group, size, 0 if self.symmetric else size, self.along, apart_bytes=self.apart * size
        )

    def check_head(self, length: int) -> None:
        """Raise ``CacheError`` where a head of ``length`` elements does not fit: groups that do not divide it, a rotation of an odd head."""
        if self.apart > length:
            raise CacheError(f"{self.apart} channels cannot be set apart from a head of {length}")
        if self.rotated:
            block_of(length)
        if self.along == "head" and self.group is not None and length % self.group:
            raise CacheError(
                f"groups of {self.group} do not divide a head of {length} elements; use a divisor of {length}, "
                f"for instance {max(g for g in range(1, min(self.group, length) + 1) if length % g == 0)}"
            )


def with_apart(format: Format, channels: int) -> Format:
    """The same format with so many channels per head stored beside the codes; ``caches.outliers`` finds which.

    >>> with_apart(integer(4, group=64), 2).sized.bytes_of(tokens=1, vectors=1, length=64)    # 32 + 4 + 2 x 2 bytes
    40
    """
    return replace(format, apart=channels)


def rotated(format: Format) -> Format:
    """The same format for numbers turned by a Hadamard matrix first; not a byte more is stored.

    Source: QuaRot (Ashkboos et al. 2024).
    """
    return replace(format, rotated=True)


def integer(
    bits: int, group: int, along: str = "head", *, symmetric: bool = False, scale_dtype: torch.dtype = torch.float16
) -> Format:
    """Integers of 2, 4 or 8 bits; ``group`` neighbors along the head or along the tokens share a scale.

    >>> integer(4, group=32).sized.bits_per_element      # 4 bits, and 32 bits of scale and zero for 32 elements
    5.0
    """
    return Format("int", bits, group, along, symmetric, scale_dtype)


def float8(
    kind: str = "e4m3", group: int | None = None, along: str = "head", *, scale_dtype: torch.dtype = torch.float16
) -> Format:
    """8-bit floats: ``"e4m3"`` (3 bits of mantissa, up to 448) or ``"e5m2"`` (2 bits, up to 57,344).

    Without a group numbers are stored as they are, and what is too large becomes the largest float
    (saturates). With one, each group is scaled so that its largest magnitude is the largest float.
    Source: Micikevicius et al. 2022, FP8 Formats for Deep Learning.

    >>> float8().sized.bits_per_element
    8.0
    """
    return Format(kind, 8, group, along, True, scale_dtype)
