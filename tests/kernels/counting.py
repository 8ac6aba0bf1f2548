"""Count what a kernel loads, stores and multiplies, by watching Triton's interpreter."""

from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Counted:
    """Bytes of numbers (floats and codes), bytes of integers that are indices, and FLOPs of matrix products."""

    asked: int = 0
    written: int = 0
    indices: int = 0
    flops: int = 0
    _places: list = field(default_factory=list)

    @property
    def read(self) -> int:
        """Distinct bytes of numbers: what must cross the bus once, however often a program asks for it."""
        places = {(int(address), size) for chunk, size in self._places for address in chunk}
        return sum(size for _, size in places)


@contextmanager
def counting():
    """Counts every launch in the block."""
    from triton.runtime.interpreter import InterpreterBuilder

    counted, kept = Counted(), {name: getattr(InterpreterBuilder, name) for name in ("create_masked_load", "create_masked_store", "create_dot")}

    def load(self, ptrs, mask, *rest):
        element = ptrs.get_element_ty()
        size, lanes = element.primitive_bitwidth // 8, np.broadcast_to(mask.data, ptrs.data.shape)
        if element.is_floating() or size == 1:
            counted.asked += int(lanes.sum()) * size
            counted._places.append((ptrs.data[lanes].ravel().copy(), size))
        else:
            counted.indices += int(lanes.sum()) * size
        return kept["create_masked_load"](self, ptrs, mask, *rest)

    def store(self, ptrs, value, mask, *rest):
        counted.written += int(np.broadcast_to(mask.data, ptrs.data.shape).sum()) * ptrs.get_element_ty().primitive_bitwidth // 8
        return kept["create_masked_store"](self, ptrs, value, mask, *rest)

    def dot(self, a, b, *rest):
        counted.flops += 2 * a.data.shape[0] * a.data.shape[1] * b.data.shape[1]
        return kept["create_dot"](self, a, b, *rest)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store, InterpreterBuilder.create_dot = load, store, dot
    try:
        yield counted
    finally:
        for name, function in kept.items():
            setattr(InterpreterBuilder, name, function)
