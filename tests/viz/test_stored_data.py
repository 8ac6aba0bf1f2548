"""Data that figures read from files: who made it, with which command, and that it is not older than its maker."""

import json

import pytest
from make_traces import FIGURES, maker_hash, makers

STORED = sorted(FIGURES.glob("*.json"))


def test_every_file_has_its_maker_and_every_maker_its_file() -> None:
    assert {path.stem for path in makers()} == {path.stem for path in STORED}


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_data_says_where_it_is_from(path) -> None:
    data = json.loads(path.read_text("utf-8"))
    assert data["title"] and data["source"]
    made = data["made"]
    assert made["command"] == f"python tools/make_traces.py {path.stem}" and made["machine"] and made["date"]
    assert made["maker"] == maker_hash(path.with_suffix(".py")), f"{path.name} is older than its maker: run {made['command']}"


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_data_fits_a_page(path) -> None:
    """A page has 4 MB for everything; a figure's data at most a tenth of it."""
    assert path.stat().st_size < 400_000
