"""What every figure promises, and the machinery that draws them."""

import importlib
import inspect
import json
import re
import xml.dom.minidom
from pathlib import Path
from typing import Any

import pytest

from kvedu.errors import KveduError
from kvedu.units import binary, decimal
from kvedu.viz.node import evaluate, pictures
from kvedu.viz.sources import figure_names, figure_script, joined
from kvedu.viz.still import page_html

STORED = Path(__file__).resolve().parents[2] / "book" / "figures"


def cases() -> list[Any]:
    """Every figure with data of its own, and every stored run: (figure, data)."""
    found = []
    for name in figure_names():
        make = importlib.import_module(f"kvedu.viz.{name}").data
        if all(p.default is not p.empty for p in inspect.signature(make).parameters.values() if p.kind is not p.VAR_KEYWORD):
            found.append(pytest.param(name, make(), id=name))
    for path in sorted(STORED.glob("*.json")):
        data = json.loads(path.read_text("utf-8"))
        found.append(pytest.param(data["figure"], data, id=path.stem))
    return found


def test_every_script_has_its_module() -> None:
    assert len(figure_names()) >= 1
    for name in figure_names():
        assert importlib.import_module(f"kvedu.viz.{name}").__doc__


@pytest.mark.parametrize("name", figure_names())
def test_scripts_are_small_and_ask_for_nothing(name: str) -> None:
    """A classic script: no module, no request, nothing drawn from elsewhere."""
    text = figure_script(name).read_text("utf-8")
    assert not re.search(r"\bimport\b|\bexport\b|\bfetch\(|XMLHttpRequest|https?://", text)
    assert len(text) < 16_000, f"{name}.js has {len(text)} characters: is it two figures?"


@pytest.mark.parametrize(("name", "data"), cases())
@pytest.mark.parametrize("width", [260, 680, 1200])
def test_every_state_draws(name: str, data: dict, width: int) -> None:
    """Each value of each control, at three widths: well-formed SVG, numbers that are numbers, a sentence."""
    assert data["figure"] == name and data["title"]
    controls = pictures(name, data, [{}], width)[0]["controls"]
    states: list[dict] = [{}]
    for control in controls:
        if control.get("options"):
            values = [value for value, _ in control["options"]]
        elif isinstance(control["value"], bool):
            values = [True, False]
        else:
            values = control.get("values") or list(range(control["min"], control["max"] + 1))
        assert control["value"] in values, f"{control['name']} starts outside of what can be chosen"
        states += [{control["name"]: value} for value in (values if len(values) < 12 else values[:: len(values) // 12])]
    for drawn in pictures(name, data, states, width):
        svg = xml.dom.minidom.parseString(drawn["svg"]).documentElement
        assert svg.getAttribute("role") == "img" and svg.getAttribute("aria-label")
        assert not re.search(r"NaN|Infinity|undefined|null", drawn["svg"] + drawn["say"]), drawn["state"]
        assert drawn["say"].endswith((".", "!", "?"))
        for node in svg.getElementsByTagName("text"):
            left, right = extent(node)
            assert -6 <= left and right <= width + 6, f"reaches out of {width} pixels: {node.toxml()}"


def extent(text: Any) -> tuple[float, float]:
    """About where a text begins and ends: letters half as wide as high."""
    x, size = float(text.getAttribute("x")), float(text.getAttribute("font-size") or 12)
    long = len("".join(node.data for node in text.childNodes)) * size / 2
    return {"middle": (x - long / 2, x + long / 2), "end": (x - long, x)}.get(text.getAttribute("text-anchor"), (x, x + long))


def test_units_are_those_of_the_library() -> None:
    values = [0, 1, 1023, 1024, 5 * 2**20, 1.25 * 2**30, 3e12, 7 * 2**41]
    assert evaluate(None, [("binary", [v]) for v in values]) == [binary(v) for v in values]
    assert evaluate(None, [("decimal", [v]) for v in values]) == [decimal(v) for v in values]
    assert evaluate(None, [("count", [12345.4])]) == ["12,345"]


def test_text_is_escaped() -> None:
    assert evaluate(None, [("text", [["text", {"x": 1.23456, "a": None, "b": '"'}, "<&>"]])]) == [
        '<text x="1.23" b="&quot;">&lt;&amp;&gt;</text>'
    ]


def test_a_page_cannot_be_broken_by_data() -> None:
    data = importlib.import_module("kvedu.viz.memory").data() | {"title": '</script><b>"'}
    assert "</script><b>" not in page_html("memory", data)


def test_mistakes_are_named() -> None:
    with pytest.raises(KveduError, match="there are .*memory"):
        figure_script("memoryy")
    with pytest.raises(KveduError, match="no pure function nope"):
        evaluate("memory", [("nope", [])])


def test_the_library_hides_from_module_loaders() -> None:
    """require.js in a notebook would swallow it otherwise."""
    assert "(function (define, exports, module) {" in joined(None)
