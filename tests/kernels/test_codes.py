"""Codes: every value comes back as it was packed, and every number within the promised distance."""

import doctest

import pytest
import torch

from kvedu.caches import formats
from kvedu.kernels.codes import decode, encode, pack, unpack
from kvedu.caches.formats import Format, float8, integer
from kvedu.errors import CacheError

SCALES = [torch.float16, torch.bfloat16, torch.float32]


def test_all_pairs_of_signed_4_bit_values():
    """C019: -8 .. 7 in both nibbles, exactly."""
    values = torch.arange(-8, 8)
    pairs = torch.cartesian_prod(values, values)
    packed = pack(pairs, 4)
    assert packed.shape == (256, 1) and packed.dtype == torch.uint8 and len(set(packed.flatten().tolist())) == 256
    assert torch.equal(unpack(packed, 4, 2, signed=True), pairs.to(torch.int16))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("n", [1, 5, 8, 80])
@pytest.mark.parametrize("signed", [True, False])
def test_odd_lengths_come_back(bits, n, signed):
    """C019: last dimensions that do not fill their bytes keep their shape and values."""
    low = -(2 ** (bits - 1)) if signed else 0
    codes = torch.randint(low, low + 2**bits, (3, 2, n), generator=torch.Generator().manual_seed(n))
    packed = pack(codes, bits)
    assert packed.shape == (3, 2, -(-n * bits // 8))
    assert torch.equal(unpack(packed, bits, n, signed), codes.to(torch.int16))
    with pytest.raises(CacheError, match="take"):
        unpack(packed, bits, n + 8)


def scale_of(coded, format: Format, T: int) -> torch.Tensor:
    """The scale of every element ``[T, K, D]``."""
    scale = coded.scale.float().repeat_interleave(format.group, -1) if format.along == "head" else coded.scale.float()
    return scale if format.along == "head" else scale.repeat_interleave(T // len(scale), 0)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("along", ["head", "tokens"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("dtype", SCALES, ids=str)
def test_within_half_a_scale(bits, along, symmetric, dtype):
    """Whatever the spread and the offset, and however coarse the type that scales are stored in."""
    x = torch.randn(12, 3, 8, generator=torch.Generator().manual_seed(bits))
    x = x * torch.logspace(-6, 3, 8) + torch.tensor([0.0, 0.1, -3.3, 100.0, 1e-4, 7.7, -50.0, 0.3])
    format = integer(bits, 4, along, symmetric=symmetric, scale_dtype=dtype)
    coded = encode(x, format)
    error = (decode(coded, format, 8) - x).abs()
    assert torch.all(error <= scale_of(coded, format, 12) / 2 + 2e-7 * (x.abs() + 1))
    assert error.max() > 0


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("along", ["head", "tokens"])
@pytest.mark.parametrize("dtype", SCALES, ids=str)
def test_channels_that_do_not_vary(bits, symmetric, along, dtype):
    """C016: all 0, all 100, a range of 1e-6, random: finite, 0 exactly 0, 100 within 1 %, the rest within half a scale."""
    x = torch.zeros(16, 2, 4)
    x[..., 1] = 100.0
    x[..., 2] = torch.linspace(0, 1e-6, 16)[:, None]
    x[..., 3] = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))
    format = integer(bits, 1 if along == "head" else 16, along, symmetric=symmetric, scale_dtype=dtype)
    coded = encode(x, format)
    back = decode(coded, format, 4)
    assert back.isfinite().all() and not back[..., 0].any()
    assert torch.all((back[..., 1] - 100).abs() < 1)
    assert torch.all((back - x).abs() <= scale_of(coded, format, 16) / 2 + 1e-7)


@pytest.mark.parametrize("format", [integer(8, 4), integer(4, 4, symmetric=True), float8("e4m3"), float8("e5m2", 4)], ids=str)
@pytest.mark.parametrize("size", [1e6, 3e38])
def test_what_is_too_large_saturates(format, size):
    """Numbers beyond the range of the scale's type, or of the 8-bit float, become large, not infinite or NaN."""
    x = torch.tensor([-size, size, 1.0, 0.0]).expand(1, 1, 4)
    back = decode(encode(x, format), format, 4)
    assert back.isfinite().all() and back[0, 0, 0] <= -448 and back[0, 0, 1] >= 448


@pytest.mark.parametrize("kind, relative, most", [("e4m3", 1 / 16, 448.0), ("e5m2", 1 / 8, 57_344.0)])
def test_8_bit_floats(kind, relative, most):
    """Within half a step of the mantissa; the largest float at the ends, whatever is beyond."""
    x = torch.logspace(-1, 2.6, 800).view(100, 1, 8) * torch.tensor([1.0, -1.0] * 4)
    for format in (float8(kind), float8(kind, 8), float8(kind, 4, "tokens")):
        back = decode(encode(x, format), format, 8)
        assert torch.all((back - x).abs() <= relative * x.abs() * 1.001)
    ends = torch.tensor([most, -most, most * 1.5, -1e30]).view(1, 1, 4)
    assert decode(encode(ends, float8(kind)), float8(kind), 4).flatten().tolist() == [most, -most, most, -most]


def test_more_bits_lose_less():
    x = torch.randn(64, 3, 32, generator=torch.Generator().manual_seed(1))
    errors = [(decode(encode(x, f), f, 32) - x).square().mean() for f in (integer(b, 32) for b in (2, 4, 8))]
    assert errors[0] > 10 * errors[1] > 1000 * errors[2] > 0


def test_an_outlier_channel_is_best_left_to_itself():
    """Why KIVI groups keys along the tokens: one channel 50 times as large spoils its neighbors in a token's vector."""
    x = torch.randn(64, 2, 32, generator=torch.Generator().manual_seed(2))
    x[..., 5] *= 50
    per_token, per_channel = integer(4, 32), integer(4, 32, "tokens")
    others = [c for c in range(32) if c != 5]
    lost = [(decode(encode(x, f), f, 32) - x)[..., others].square().mean().item() for f in (per_token, per_channel)]
    assert lost[0] > 50 * lost[1]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: integer(3, 8), "2, 4 or 8 bits"),
        (lambda: Format("e4m3", 4, None, "head", True), "floats 8"),
        (lambda: Format("int7", 8, 8, "head", True), "no format 'int7'"),
        (lambda: float8("e3m4"), "no format 'e3m4'"),
        (lambda: integer(4, 8, "channel"), "per channel"),
        (lambda: integer(4, 0), "at least 1 element"),
        (lambda: integer(2, 6, "tokens"), "multiple of 4 tokens"),
        (lambda: Format("int", 8, None, "head", True), "give a group"),
        (lambda: float8("e4m3", None, "tokens"), "no group to lay along"),
        (lambda: integer(4, 8, scale_dtype=torch.int8), "float16, bfloat16 or float32"),
        (lambda: integer(4, 32).check_head(80), "groups of 32 do not divide a head of 80 elements.*instance 20"),
        (lambda: encode(torch.zeros(5, 1, 8), integer(8, 4, "tokens")), "no whole groups of 4"),
    ],
)
def test_formats_that_make_no_sense(make, message):
    with pytest.raises(CacheError, match=message):
        make()


def test_examples():
    result = doctest.testmod(formats)
    assert result.failed == 0 and result.attempted == 3
