"""The coded figure counts bytes as ``kvedu.analysis.quantized``, and says when instructions decide."""

import itertools
import json
from pathlib import Path

from kvedu.analysis.hardware import hardware
from kvedu.analysis.issue import issue_rate
from kvedu.book.rows import load_row
from kvedu.viz import coded, still
from kvedu.viz.node import evaluate

STORED = json.loads((Path(__file__).resolve().parents[2] / "book" / "figures" / "19_coded.json").read_text("utf-8"))


def test_bytes_on_a_grid() -> None:
    grid = [
        (format, tokens, vectors, length)
        for format, tokens, vectors, length in itertools.product([f for pair in coded.FORMATS.values() for f in pair], (16, 64, 320), (1, 8), (64, 128))
        if format.group is None or format.along == "tokens" or length % format.group == 0
    ]
    found = evaluate("coded", [("sideBytes", [coded.side(format), *rest]) for format, *rest in grid])
    assert [sum(pair) for pair in found] == [format.sized.bytes_of(*rest) for format, *rest in grid]


def test_what_is_coded_on_a_grid() -> None:
    grid = list(itertools.product((0, 1, 63, 200, 4096), (0, 16, 128), (1, 16, 32)))
    wanted = [coded.FORMATS["KIVI, 4 bits"][0].sized.__class__(bits=4, group=unit, along="tokens").coded(tokens, residual) for tokens, residual, unit in grid]
    assert evaluate("coded", [("codedTokens", list(one)) for one in grid]) == wanted


def test_bounds() -> None:
    machine = hardware("H200-SXM")
    by_bytes, by_instructions = evaluate("coded", [("atLeast", [4.8e12, 1e12, machine.bandwidth, issue_rate(machine, 90)])])[0]
    assert by_bytes == 1 and by_instructions == 1e12 / (67e12 / 2)


def test_the_stored_figure_is_the_stored_row() -> None:
    """Instructions come from the measurement; a refreshed row wants a refreshed figure."""
    rows = {(row["capability"], row["format"]): row["per_element"] for row in load_row("instructions")["rows"]}
    for chip in STORED["chips"]:
        found = {name: rows[coded.CHIPS[chip["name"]], name] for name in chip["per_element"]}
        assert chip["per_element"] == found and set(found) >= {"16 bits", *coded.FORMATS}


def test_what_goes_wrong_is_said() -> None:
    assert "refuses" in still("coded", STORED, {"format": "KIVI, 4 bits", "page": 8}).say
    assert "Nothing is coded yet" in still("coded", STORED, {"context": 64, "residual": 128}).say
    made = dict(STORED, chips=[dict(chip, per_element={name: 50.0 if name == "int4" else 1.0 for name in chip["per_element"]}) for chip in STORED["chips"]])
    assert "instructions decide" in still("coded", made, {"format": "int4"}).say and "slower than in 16 bits" in still("coded", made, {"format": "int4"}).say
    assert "Bytes decide" in still("coded", made, {"format": "e4m3"}).say
