"""The splits figure cuts keys as the kernel does, and lays programs out as ``kvedu.kernels.schedule``."""

import itertools

import pytest

from kvedu.kernels.launch import Chip
from kvedu.kernels.schedule import merge_bytes, program_bytes, schedule
from kvedu.kernels.splits import keys_of_splits, splits_for
from kvedu.viz import splits, still
from kvedu.viz.node import evaluate


def test_the_rule_on_a_grid() -> None:
    grid = list(itertools.product((75, 80, 90, 100), (0, 1, 8, 64, 528, 5000), (1, 255, 256, 4096, 131_072), (16, 32, 64, 128)))
    calls = [("splitsFor", [Chip.known(c).processors, programs, keys, tile]) for c, programs, keys, tile in grid]
    assert evaluate("splits", calls) == [splits_for(Chip.known(c), programs, keys, tile) for c, programs, keys, tile in grid]


def test_keys_of_each_split_on_a_grid() -> None:
    grid = list(itertools.product((1, 63, 64, 65, 300, 4096), (1, 2, 3, 7, 128), (16, 64)))
    assert evaluate("splits", [("keysOfSplits", list(one)) for one in grid]) == [keys_of_splits(*one) for one in grid]


def test_bytes_on_a_grid() -> None:
    grid = list(itertools.product((0, 1, 64, 999), (1, 3, 4), (64, 128), (1, 2), (True, False)))
    assert evaluate("splits", [("programBytes", list(one)) for one in grid]) == [program_bytes(*one) for one in grid]
    grid = list(itertools.product((1, 5), (5, 8), (64, 128), (1, 2)))
    assert evaluate("splits", [("mergeBytes", list(one)) for one in grid]) == [merge_bytes(*one) for one in grid]


@pytest.mark.parametrize("lengths", [[300], [1000, 64, 1, 500], [4096] * 8])
@pytest.mark.parametrize("n_splits", [1, 3, 16])
def test_who_runs_where(lengths: list[int], n_splits: int) -> None:
    for processors in (5, 108):
        args = (lengths, 2, n_splits, 64, processors, 4, 128, 2)
        wanted = [[p.head, p.sequence, p.split, p.keys, p.processor, p.place] for p in schedule(*args)]
        assert evaluate("splits", [("schedule", list(args))])[0] == wanted


def test_what_goes_wrong_is_said() -> None:
    made = splits.data()
    assert "8 programs on 132 multiprocessors: 124 never get one" in still("splits", made).say
    ruled = still("splits", made, {"splits": 0}).say
    assert "fewer bytes than without splits" in ruled and "never" not in ruled
    assert "of an empty split" in still("splits", made, {"context": 1024, "splits": 32}).say
    assert "costs more than it saves" in still("splits", made, {"context": 256, "batch": 16, "splits": 8}).say
    assert "of an empty split" in still("splits", made, {"batch": 8, "lengths": "one long", "context": 16384, "splits": 64}).say


def test_pages_smaller_than_a_tile_are_looked_up_for_each_key() -> None:
    rows = {page: dict(row[:2] for row in still("splits", splits.data(), {"page": page}).readout)["table entries per key"] for page in (16, 64)}
    assert rows == {16: "2.0", 64: "0.031"}
