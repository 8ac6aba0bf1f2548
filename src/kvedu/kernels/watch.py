"""Watch a kernel at work in Triton's interpreter: every load, store and product, by program; a stray access is an error.

The interpreter runs a kernel's programs one after the other over NumPy arrays, so each access can be seen with its
addresses and its mask. That is how bytes are counted where there is no GPU, and how a forgotten mask is found: on
a GPU a read behind a tensor's end gives some number, or a fault somewhere else.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Iterator

import numpy as np
import torch
from torch import Tensor

from kvedu.kernels.launch import KernelError


class StrayAccess(KernelError):
    """A kernel read or wrote a place that belongs to none of its tensors."""


@dataclass(frozen=True)
class Access:
    """One load or store of one program: the elements that its mask let through.

    ``places`` count elements from the tensor's first one, as its strides do; ``name`` is "" for a tensor that was not named.
    """

    kind: str
    program: tuple[int, int, int]
    name: str
    places: np.ndarray
    size: int

    @property
    def nbytes(self) -> int:
        """Bytes that cross over to the program or back."""
        return len(self.places) * self.size


@dataclass
class Watched:
    """Bytes of numbers (floats and codes) asked for and written, bytes of integers that are indices, FLOPs of matrix products."""

    asked: int = 0
    written: int = 0
    indices: int = 0
    flops: int = 0
    accesses: list[Access] = field(default_factory=list)
    _places: list[tuple[np.ndarray, int]] = field(default_factory=list)

    @property
    def read(self) -> int:
        """Distinct bytes of numbers: what must cross the bus once, however often programs ask for it."""
        return sum(size * len(np.unique(np.concatenate([at for at, s in self._places if s == size]))) for size in {s for _, s in self._places})

    def of(self, name: str, kind: str = "load") -> list[Access]:
        """The accesses to one tensor, in order."""
        return [access for access in self.accesses if (access.name, access.kind) == (name, kind)]


@contextmanager
def watching(*, strict: bool = False, **tensors: Tensor) -> Iterator[Watched]:
    """Watch every launch in the block; accesses to the named tensors are kept by name.

    ``strict``: a place that belongs to no element of the named tensors raises ``StrayAccess``, and what a masked
    load leaves out is NaN unless the kernel says ``other=``, since Triton promises nothing about it.
    """
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    watched = Watched()
    kept = {name: getattr(InterpreterBuilder, name) for name in ("create_masked_load", "create_masked_store", "create_dot")}
    homes = {name: _addresses(x) for name, x in tensors.items()}

    def note(builder: Any, kind: str, ptrs: Any, mask: Any) -> tuple[np.ndarray, Any]:
        element = ptrs.get_element_ty()
        at = ptrs.data[np.broadcast_to(mask.data, ptrs.data.shape).astype(bool)].ravel()
        name = next((name for name, home in homes.items() if len(at) and home[0] <= at[0] <= home[-1]), "")
        if strict and len(at):
            _check(kind, at, homes, tensors, builder.grid_idx)
        size = element.primitive_bitwidth // 8
        start = tensors[name].data_ptr() if name else 0
        watched.accesses.append(Access(kind, builder.grid_idx, name, (at.astype(np.int64) - start) // size, size))
        return at, element

    def load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any) -> Any:
        at, element = note(self, "load", ptrs, mask)
        size = element.primitive_bitwidth // 8
        if element.is_floating() or size <= 2:  # codes come in bytes and in words of 16 bits, indices in wider integers
            watched.asked += len(at) * size
            watched._places.append((at, size))
        else:
            watched.indices += len(at) * size
        if strict and other is None and element.is_floating() and size in (2, 4, 8) and str(element) != "bf16":
            other = TensorHandle(np.full(ptrs.data.shape, np.nan, dtype=f"f{size}"), element)
        return kept["create_masked_load"](self, ptrs, mask, other, *rest)

    def store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        at, element = note(self, "store", ptrs, mask)
        watched.written += len(at) * element.primitive_bitwidth // 8
        return kept["create_masked_store"](self, ptrs, value, mask, *rest)

    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        watched.flops += 2 * a.data.shape[-2] * a.data.shape[-1] * b.data.shape[-1]
        return kept["create_dot"](self, a, b, *rest)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store, InterpreterBuilder.create_dot = load, store, dot
    try:
        with np.errstate(all="ignore"):  # a GPU does not warn of infinities either
            yield watched
    finally:
        for name, function in kept.items():
            setattr(InterpreterBuilder, name, function)


def _addresses(x: Tensor) -> np.ndarray:
    """Addresses of all elements of a tensor, sorted: what a kernel may touch of it."""
    places = torch.zeros(1, dtype=torch.int64)
    for n, stride in zip(x.shape, x.stride()):
        places = (places[:, None] + torch.arange(n) * stride).flatten()
    return np.unique(places.numpy() * x.element_size() + x.data_ptr()).astype(np.uint64)


def _check(kind: str, at: np.ndarray, homes: dict[str, np.ndarray], tensors: dict[str, Tensor], program: tuple[int, int, int]) -> None:
    """Raise ``StrayAccess`` where an address is no element's, naming the tensor that the access's other places are of, else the nearest."""
    inside = {name: np.isin(at, home) for name, home in homes.items()}
    stray = ~np.logical_or.reduce(list(inside.values()))
    if not stray.any():
        return
    first = int(at[stray][0])

    def gap(name: str) -> int:
        low, high = int(homes[name][0]), int(homes[name][-1])
        return max(low - first, first - high, 0)

    name = min((name for name in homes if len(homes[name])), key=lambda name: (-inside[name].sum(), gap(name)))
    x = tensors[name]
    place = (first - x.data_ptr()) // x.element_size()
    verb = "reads" if kind == "load" else "writes"
    raise StrayAccess(
        f"program {program} of the kernel {verb} {int(stray.sum())} places that belong to no tensor, the first at {name} + {place}; "
        f"{name} has shape {tuple(x.shape)} and strides {tuple(x.stride())}: is a mask missing, or a stride wrong?"
    )
