"""Bytes with named units, and costs that add."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvedu.units import GB, GiB, Cost, binary, decimal

COSTS = st.builds(Cost, *[st.integers(0, 2**40)] * 3)


def test_gib_is_not_gb():
    """C036: the same bytes in both, and the 7.4 % between them."""
    n_bytes = 10_737_418_240
    assert (binary(n_bytes), decimal(n_bytes)) == ("10.00 GiB", "10.74 GB")
    assert GiB / GB == pytest.approx(1.0737, abs=1e-4)


@pytest.mark.parametrize("n_bytes, in_binary, in_decimal", [
    (0, "0 B", "0 B"), (999, "999 B", "999 B"), (1000, "1000 B", "1.00 kB"), (1023, "1023 B", "1.02 kB"),
    (1024, "1.00 KiB", "1.02 kB"), (2**40, "1.00 TiB", "1.10 TB"), (-2048, "-2.00 KiB", "-2.05 kB"),
])
def test_the_largest_unit_that_keeps_the_number_at_one(n_bytes, in_binary, in_decimal):
    assert (binary(n_bytes), decimal(n_bytes)) == (in_binary, in_decimal)


def test_digits():
    assert binary(1.5 * GiB, digits=0) == "2 GiB" and decimal(1.25 * GB, digits=1) == "1.2 GB"


@given(COSTS, COSTS, st.integers(0, 100))
def test_costs_add_and_scale(a, b, times):
    total = times * a + b
    assert total == Cost(times * a.flops + b.flops, times * a.read + b.read, times * a.written + b.written)
    assert sum([a, b]) == a + b == b + a
    assert total.bytes == total.read + total.written


def test_intensity():
    assert Cost(6, 2, 1).intensity == 2.0
    assert Cost(6).intensity == float("inf")


def test_negative_costs_and_strange_sums_are_refused():
    with pytest.raises(ValueError, match="read = -1"):
        Cost(0, -1)
    with pytest.raises(TypeError, match="cannot add 1"):
        1 + Cost()
