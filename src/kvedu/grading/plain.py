"""What an answer gave, as plain data of exact types: nothing of the learner's own classes gets past here.

An object with a lying ``==``, a subclass of ``int``, a tensor with methods of its own: each could make a
comparison say what its author likes. Only exact built-in types and tensors go through, tensors as
copies; anything else becomes a ``Strange``, which equals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ATOMS = (type(None), bool, int, float, str)
LARGEST_TENSOR = 1 << 24
"""Elements; more is not looked at."""
DEEPEST = 12


@dataclass(frozen=True)
class Strange:
    """Something that is not plain data; ``kind`` names its type."""

    kind: str


def plain(value: Any, depth: int = 0) -> Any:
    """A copy of ``value`` that is made of built-in types and tensors only."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if depth > DEEPEST:
        return Strange("something nested too deeply")
    if kind is list:
        return [plain(x, depth + 1) for x in list(value)]
    if kind is tuple or (issubclass(kind, tuple) and "_fields" in kind.__dict__):
        return tuple(plain(x, depth + 1) for x in tuple.__iter__(value))
    if kind is dict and all(type(key) in ATOMS for key in dict(value)):
        return {key: plain(x, depth + 1) for key, x in dict(value).items()}
    if kind is set and all(type(x) in ATOMS for x in value):
        return set(value)
    if kind is Tensor or kind is torch.nn.Parameter:
        return _plain_tensor(value)
    if kind.__module__ == "numpy" and hasattr(kind, "item"):
        return _plain_numpy(value)
    if kind is torch.dtype or kind is torch.device or kind is torch.Size:
        return tuple(value) if kind is torch.Size else str(value)
    return Strange(str(type.__getattribute__(kind, "__name__")))


def _plain_tensor(value: Tensor) -> Any:
    if value.layout != torch.strided or value.device.type == "meta":
        return Strange(f"a tensor with layout {value.layout} on {value.device.type}")
    if Tensor.numel(value) > LARGEST_TENSOR:
        return Strange(f"a tensor of {Tensor.numel(value):,} elements")
    return Tensor.clone(Tensor.detach(value), memory_format=torch.contiguous_format)


def _plain_numpy(value: Any) -> Any:
    if value.ndim:
        return Strange("a NumPy array")
    item = value.item()
    return item if type(item) in ATOMS else Strange("a NumPy scalar")
