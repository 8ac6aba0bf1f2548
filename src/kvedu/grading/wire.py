"""What was seen of an answer, as bytes between two processes: JSON and raw tensors, nothing that runs code.

``decode`` reads bytes that untrusted code may have written: it makes plain data of known types within
limits of size and depth, or raises ``WireError``.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import torch
from torch import Tensor

from kvedu.errors import KveduError
from kvedu.grading.observe import Changed, Raised, Stopped
from kvedu.grading.plain import DEEPEST, LARGEST_TENSOR, Strange

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
)}  # fmt: skip
LONGEST_TEXT = 1 << 16


class WireError(KveduError):
    """Bytes that are not what ``encode`` makes."""


def encode(value: Any) -> bytes:
    """Plain data, ``Raised``, ``Stopped``, ``Changed`` and ``Strange`` as bytes."""
    return json.dumps(_packed(value)).encode()


def decode(data: bytes) -> Any:
    """The value of ``encode``'s bytes. Raises ``WireError`` for any others."""
    try:
        return _unpacked(json.loads(data), 0)
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"these bytes hold no result: {type(error).__name__}") from None


def _packed(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value[:LONGEST_TEXT]
        case list():
            return ["list", *map(_packed, value)]
        case tuple():
            return ["tuple", *map(_packed, value)]
        case set():
            return ["set", *map(_packed, value)]
        case dict():
            return ["dict", *([_packed(key), _packed(x)] for key, x in value.items())]
        case Tensor():
            return _packed_tensor(value)
        case Strange():
            return ["strange", value.kind[:200]]
        case Raised():
            return ["raised", value.kind[:200], value.message, value.place[:500]]
        case Changed():
            return ["changed", value.argument]
        case Stopped():
            return ["stopped"]
    raise WireError(f"a {type(value).__name__} does not travel")


def _packed_tensor(value: Tensor) -> Any:
    name = str(value.dtype).removeprefix("torch.")
    if value.device.type != "cpu" or name not in DTYPES:
        return ["strange", f"a {name} tensor on {value.device.type}"]
    data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    return ["tensor", name, list(value.shape), base64.b64encode(data).decode()]


def _unpacked(value: Any, depth: int) -> Any:
    if depth > 2 * DEEPEST:
        raise WireError("a result is nested too deeply")
    if not isinstance(value, list):
        if isinstance(value, dict):
            raise WireError("a result holds a bare object")
        return value
    kind, *rest = value
    match kind:
        case "list":
            return [_unpacked(x, depth + 1) for x in rest]
        case "tuple":
            return tuple(_unpacked(x, depth + 1) for x in rest)
        case "set":
            return {_unpacked(x, depth + 1) for x in rest}
        case "dict":
            return {_unpacked(key, depth + 1): _unpacked(x, depth + 1) for key, x in rest}
        case "tensor":
            return _unpacked_tensor(*rest)
        case "strange":
            return Strange(str(rest[0]))
        case "raised":
            return Raised(*(str(x) for x in rest))
        case "changed":
            return Changed(int(rest[0]))
        case "stopped":
            return Stopped()
    raise WireError(f"a result of kind {str(kind)[:40]!r}")


def _unpacked_tensor(name: str, shape: list[int], text: str) -> Tensor:
    if not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) > LARGEST_TENSOR or len(shape) > 16:
        raise WireError(f"a tensor of shape {str(shape)[:60]}")
    data, dtype = base64.b64decode(text, validate=True), DTYPES[name]
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise WireError(f"a tensor of shape {shape} with {len(data)} bytes")
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)
