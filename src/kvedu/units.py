"""Units and costs: bytes that know GiB from GB, and work as FLOPs plus bytes moved.

1 GiB = 2**30 bytes (what memory is sold and allocated in); 1 GB = 10**9 bytes
(what datasheets quote bandwidth and capacity in). They differ by 7.4 %, more
than many of the effects that this book measures, so nothing here says "GB"
when it means "GiB".
"""

from __future__ import annotations

from dataclasses import dataclass

KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12

_BINARY = (("TiB", TiB), ("GiB", GiB), ("MiB", MiB), ("KiB", KiB))
_DECIMAL = (("TB", TB), ("GB", GB), ("MB", MB), ("kB", KB))


def binary(n_bytes: float, digits: int = 2) -> str:
    """Bytes in the largest binary unit that keeps the number at 1 or above: ``"1.25 GiB"``."""
    return _in_units(n_bytes, _BINARY, digits)


def decimal(n_bytes: float, digits: int = 2) -> str:
    """Bytes in the largest decimal unit that keeps the number at 1 or above: ``"1.34 GB"``."""
    return _in_units(n_bytes, _DECIMAL, digits)


def _in_units(n_bytes: float, units: tuple[tuple[str, int], ...], digits: int) -> str:
    for name, size in units:
        if abs(n_bytes) >= size:
            return f"{n_bytes / size:.{digits}f} {name}"
    return f"{n_bytes:.0f} B"


@dataclass(frozen=True)
class Cost:
    """Work of an operation: floating-point operations, bytes read, bytes written.

    A multiply and an add count as two FLOPs. Bytes are those that must cross
    the memory bus if each operand is touched once. Costs add, and scale by a count:
    ``30 * layer + head``.
    """

    flops: float = 0.0
    read: float = 0.0
    written: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flops", "read", "written"):
            if getattr(self, name) < 0:
                raise ValueError(f"a cost cannot be negative: {name} = {getattr(self, name)}")

    @property
    def bytes(self) -> float:
        """Bytes read plus bytes written."""
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOPs per byte; infinite if nothing is moved."""
        return self.flops / self.bytes if self.bytes else float("inf")

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.read + other.read, self.written + other.written)

    def __radd__(self, other: int) -> Cost:
        if other != 0:
            raise TypeError(f"cannot add {other!r} to a Cost; sum() of Costs starts at 0")
        return self

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.read * times, self.written * times)

    __rmul__ = __mul__
