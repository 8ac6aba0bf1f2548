"""Numbers to codes and back: packing bits into bytes, scales, zero points, saturating 8-bit floats.

``encode`` and ``decode`` are pure functions of the numbers and the format (``caches.formats`` makes them). Their first
axis counts *units*: tokens where a group lies along the head, whole groups of tokens where it lies along
the tokens. Codes of more tokens are therefore made by putting units one after the other.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kvedu.errors import CacheError
from kvedu.kernels.hadamard import hadamard

FLOAT8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


class Format(Protocol):
    """What ``encode`` and ``decode`` read of a format; ``caches.formats.Format`` is one, and says what each means."""

    kind: str
    bits: int
    group: int | None
    along: str
    symmetric: bool
    scale_dtype: torch.dtype
    apart: int
    rotated: bool

    @property
    def step(self) -> int:
        """Tokens that are coded together."""


class Coded(NamedTuple):
    """Packed codes ``[units, K, bytes]``, scales and zero points ``[units, K, groups]``, channels set apart ``[units, K, n]``.

    What a format has not is None.
    """

    codes: Tensor
    scale: Tensor | None
    zero: Tensor | None
    apart: Tensor | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """What is stored."""
        return [x for x in self if x is not None]

    def join(self, later: Coded) -> Coded:
        """These units and then those."""
        return Coded(*(None if a is None else torch.cat((a, b)) for a, b in zip(self, later)))

    def take(self, index: Tensor) -> Coded:
        """Copies of some units."""
        return Coded(*(None if x is None else x[index] for x in self))


def pack(codes: Tensor, bits: int) -> Tensor:
    """Integers of 2, 4 or 8 bits, signed or not, into bytes along the last axis.

    The first code is in the lowest bits. ``[..., n]`` -> uint8 ``[..., ceil(n * bits / 8)]``; the last
    byte is filled up with zeros.
    """
    per_byte = 8 // bits
    codes = (codes.to(torch.int16) & (2**bits - 1)).to(torch.uint8)
    if per_byte == 1:
        return codes
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % per_byte))
    codes = codes.unflatten(-1, (-1, per_byte))
    out = codes[..., 0].clone()
    for i in range(1, per_byte):
        out |= codes[..., i] << (i * bits)
    return out


def unpack(packed: Tensor, bits: int, count: int, signed: bool = False) -> Tensor:
    """The ``count`` integers along the last axis that ``pack`` was given, as int16; ``signed`` extends the sign.

    Raises ``CacheError`` where the bytes do not hold that many.
    """
    per_byte = 8 // bits
    if packed.shape[-1] != -(-count // per_byte):
        raise CacheError(f"{count} codes of {bits} bits take {-(-count // per_byte)} bytes, got {packed.shape[-1]}")
    parts = [(packed >> (i * bits)) & (2**bits - 1) for i in range(per_byte)]
    codes = torch.stack(parts, dim=-1).flatten(-2)[..., :count].to(torch.int16)
    return (codes ^ 2 ** (bits - 1)) - 2 ** (bits - 1) if signed else codes


def encode(x_TKD: Tensor, format: Format, channels_Kn: Tensor | None = None) -> Coded:
    """Codes of T tokens' vectors; T must be a multiple of ``format.step``. ``channels_Kn``: those that ``format`` sets apart.

    Integers: every element comes back within half a scale of what it was. Zero points are rounded
    down and scales up when they are stored, so that the ends of a range stay inside; a group of
    equal elements has scale 0 and comes back as its zero point. Numbers beyond the range of
    ``scale_dtype`` saturate. 8-bit floats: within 1/16 (e4m3) or 1/8 (e5m2) of the number itself,
    or half the smallest step. Cost: O(T K D). Source of the asymmetric scheme: KIVI (Liu et al. 2024).
    """
    x_TKD, apart = x_TKD.to(torch.float32), None
    if format.rotated:
        x_TKD = hadamard(x_TKD)
    if format.apart:
        index = channels_Kn.expand(len(x_TKD), -1, -1)
        apart = _saturated(x_TKD.gather(2, index), format.scale_dtype)
        x_TKD = x_TKD.scatter(2, index, 0.0)
    return _coded(x_TKD, format)._replace(apart=apart)


def _coded(x_TKD: Tensor, format: Format) -> Coded:
    """Codes of fp32 numbers as they are."""
    if format.group is None:
        return Coded(_bytes_of_float8(x_TKD, format), None, None)
    x = _groups(x_TKD, format)  # [units, K, groups, group]
    if format.kind != "int":
        scale = _stored(x.abs().amax(-1) / torch.finfo(FLOAT8[format.kind]).max, format.scale_dtype, up=True)
        return Coded(_bytes_of_float8(_over(x, scale), format).flatten(2), scale, None)
    if format.symmetric:
        most, zero = 2 ** (format.bits - 1) - 1, None
        scale = _stored(x.abs().amax(-1) / most, format.scale_dtype, up=True)
        codes = _over(x, scale).round().clamp(-most, most)
    else:
        most = 2**format.bits - 1
        zero = _stored(x.amin(-1), format.scale_dtype, up=False)
        x = x - zero.to(torch.float32)[..., None]
        scale = _stored(x.amax(-1).clamp(min=0) / most, format.scale_dtype, up=True)
        codes = _over(x, scale).round().clamp(0, most)
    return Coded(pack(codes.flatten(2), format.bits), scale, zero)


def decode(
    coded: Coded,
    format: Format,
    length: int,
    dtype: torch.dtype = torch.float32,
    channels_Kn: Tensor | None = None,
) -> Tensor:
    """``[T, K, D]`` numbers in ``dtype`` of coded vectors of ``length`` D elements. Computed in fp32."""
    x_TKD = _decoded(coded, format, length)
    if format.apart:
        places = channels_Kn.expand(len(x_TKD), -1, -1)
        x_TKD = x_TKD.scatter(2, places, coded.apart.to(torch.float32))
    return (hadamard(x_TKD) if format.rotated else x_TKD).to(dtype)


def _decoded(coded: Coded, format: Format, length: int) -> Tensor:
    """fp32 numbers of codes."""
    if format.group is None:
        return coded.codes.view(FLOAT8[format.kind]).to(torch.float32)
    count = length * format.step
    if format.kind == "int":
        x = unpack(coded.codes, format.bits, count, format.symmetric).to(torch.float32)
    else:
        x = coded.codes.view(FLOAT8[format.kind]).to(torch.float32)
    x = x.unflatten(2, (-1, format.group)) * coded.scale.to(torch.float32)[..., None]
    if coded.zero is not None:
        x = x + coded.zero.to(torch.float32)[..., None]
    return x.flatten(2) if format.along == "head" else x.permute(0, 3, 1, 2).flatten(0, 1)


def empty(format: Format, vectors: int, length: int, device: torch.device) -> Coded:
    """Codes of no tokens."""
    channels = torch.zeros(vectors, format.apart, dtype=torch.long, device=device)
    return encode(torch.empty(0, vectors, length, device=device), format, channels)


def _groups(x_TKD: Tensor, format: Format) -> Tensor:
    """The same numbers as ``[units, K, groups, group]``."""
    if format.along == "head":
        return x_TKD.unflatten(2, (-1, format.group))
    T, K, D = x_TKD.shape
    if T % format.group:
        raise CacheError(f"{T} tokens are no whole groups of {format.group}; leave the rest in full precision")
    return x_TKD.reshape(T // format.group, format.group, K, D).permute(0, 2, 3, 1)


def _over(x: Tensor, scale: Tensor) -> Tensor:
    """x / scale; 0 where the scale is 0."""
    divisor = scale.to(torch.float32)[..., None]
    return torch.where(divisor == 0, 0.0, x / torch.where(divisor == 0, 1.0, divisor))


def _bytes_of_float8(x: Tensor, format: Format) -> Tensor:
    """Nearest 8-bit floats as bytes, the largest one where x is beyond it; a plain cast would give NaN or infinity."""
    most = torch.finfo(FLOAT8[format.kind]).max
    return x.clamp(-most, most).to(FLOAT8[format.kind]).view(torch.uint8)


def _saturated(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in ``dtype``, the largest number where it is beyond it."""
    most = torch.finfo(dtype).max
    return x.clamp(-most, most).to(dtype)


def _stored(x: Tensor, dtype: torch.dtype, up: bool) -> Tensor:
    """x in ``dtype``, rounded up or down and saturated. Neighbors in a float format are neighbors as integers."""
    most, near = torch.finfo(dtype).max, _saturated(x, dtype)
    wrong = near.to(torch.float32) < x if up else near.to(torch.float32) > x
    bits = near.view(torch.int32 if dtype.itemsize == 4 else torch.int16)
    if not up:  # the next lower one: one less for positive numbers, one more for negative ones
        below_zero = torch.full_like(bits, torch.iinfo(bits.dtype).min + 1)  # the sign, and the smallest magnitude
        lower = torch.where(near > 0, bits - 1, torch.where(near < 0, bits + 1, below_zero))
        return torch.where(wrong & (near > -most), lower, bits).view(dtype)
    return torch.where(wrong & (near < most), bits + 1, bits).view(dtype)  # scales are never negative
