"""Results between two processes: what goes in comes out, and bytes that a stranger made do no harm."""

import json

import pytest
import torch

from kvedu.grading.observe import Changed, Raised, Stopped
from kvedu.grading.plain import Strange
from kvedu.grading.wire import DTYPES, WireError, decode, encode


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -(10**40), 2.5, float("inf"), "text", "", [1, (2, [3])], (), {"a": {1: (2,)}}, {1, 2},
        Strange("Liar"), Raised("E", "m", "p"), Changed(1), [Stopped()], {(1, 2): "key"},
    ],
    ids=repr,
)  # fmt: skip
def test_what_goes_in_comes_out(value: object) -> None:
    assert decode(encode(value)) == value and type(decode(encode(value))) is type(value)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_come_out_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.randint(0, 2, shape).to(dtype)
    got = decode(encode(value))
    assert got.shape == value.shape and got.dtype == dtype and torch.equal(got.double() if not dtype.is_complex else got, value.double() if not dtype.is_complex else value)


def test_a_view_travels_as_what_it_shows() -> None:
    assert torch.equal(decode(encode(torch.arange(6).view(2, 3).T)), torch.arange(6).view(2, 3).T)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"\xff\xfe", b'{"a": 1}', b'["nothing"]', b"[]", b'["tensor", "float32", [1000000, 1000000], ""]',
        b'["tensor", "float32", [2], "AAAA"]', b'["tensor", "object", [1], "AAAA"]', b'["tensor", "float32", [-1], ""]',
        b'["tensor", "float32", [1.5], ""]', b'["dict", 3]', b'["set", ["list"]]', b"[" * 10_000, b'["list",' * 60 + b"1" + b"]" * 60,
        b'["raised"]', b"9" * 10_000,
    ],
)  # fmt: skip
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


def test_nothing_else_travels() -> None:
    with pytest.raises(WireError):
        encode(object())
    assert json.loads(encode([1])) == ["list", 1]
