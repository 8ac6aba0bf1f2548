"""The needle grid: what is measured is what the quiz measures, and the script reads the grid that is chosen."""

import pytest
import torch

import kvedu
from kvedu import ConcatCache, WindowCache
from kvedu.errors import KveduError
from kvedu.viz import needles
from kvedu.viz.node import evaluate
from kvedu.viz.still import still

FULL = {"name": "every token", "grids": {"100": {"blind": [[1.0, 0.5, 1.0]] * 2}}}
LITTLE = {"name": "newest", "grids": {"50": {"blind": [[0.0, 0.0, 1.0]] * 2}, "25": {"blind": [[0, 0, 0.5], [0, 0, 1]], "aware": [[0.5, 0, 1]] * 2}}}
DATA = needles.data([FULL, LITTLE], (64, 128), 2, depths=(0.0, 0.5, 1.0))


def test_the_script_takes_the_chosen_grid() -> None:
    calls = [("gridOf", [method, budget, aware]) for method in (FULL, LITTLE) for budget in (50, 25) for aware in (False, True)]
    found = evaluate("needles", calls)
    blind = LITTLE["grids"]["25"]
    assert found[:4] == [FULL["grids"]["100"]["blind"]] * 4
    assert found[4:] == [LITTLE["grids"]["50"]["blind"]] * 2 + [blind["blind"], blind["aware"]]
    for grid, mean in zip(found, evaluate("needles", [("mean", [grid]) for grid in found]), strict=True):
        cells = [cell for row in grid for cell in row]
        assert mean == pytest.approx(sum(cells) / len(cells))


def test_it_says_what_it_shows() -> None:
    said = still("needles", DATA, {"method": "newest", "budget": 25, "aware": False}).say
    assert "newest, 25 % of the tokens, the question not known: 25 % of the needles are found, 75 % of those at the end" in said
    assert "every token: 83 %" in still("needles", DATA, {"method": "every token", "budget": 25, "aware": True}).say


def test_a_grid_of_another_size_is_refused() -> None:
    with pytest.raises(KveduError, match="2 rows of 3 cells"):
        needles.data([FULL, LITTLE | {"grids": {"25": {"blind": [[0.0] * 3]}}}], (64, 128), 2, depths=(0.0, 0.5, 1.0))


def test_a_small_grid_of_the_real_model() -> None:
    """The full cache finds what a window of a tenth loses, except at the end."""
    smollm2 = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
    full = needles.grid(smollm2, {160: lambda config: ConcatCache(config)}, depths=(0.0, 1.0), n=1)
    window = needles.grid(smollm2, {160: lambda config: WindowCache(config, window=40)}, depths=(0.0, 1.0), n=1)
    assert full == [[1.0, 1.0]] and window == [[0.0, 1.0]]
