"""Sliders over a plain function: the text follows them, and is all that is left where no widget runs."""

import sys
from subprocess import run

import ipywidgets
import pytest

from kvedu.errors import KveduError
from kvedu.viz.explore import WIDGET, explore


def rows(tokens, cached):
    return f"{1 if cached else tokens} rows < all"


def test_the_text_follows_the_sliders_and_equals_the_plain_function():
    explorer = explore(rows, tokens=(8, 64, 512), cached=(True, False))
    assert repr(explorer) == explorer.text == rows(8, True)
    shown = explorer._box.children[-1]
    for tokens in (8, 64, 512):
        for cached in (True, False):
            explorer.sliders["tokens"].value, explorer.sliders["cached"].value = tokens, cached
            assert explorer.text == rows(tokens, cached)
            assert shown.value == f"<pre>{rows(tokens, cached).replace('<', '&lt;')}</pre>"


def test_a_slider_says_what_it_moves_and_where_it_stands():
    sliders = explore(rows, tokens=(8, 8192), cached=(True, False)).sliders
    assert sliders["tokens"].description == "tokens" and [name for name, _ in sliders["tokens"].options] == ["8", "8,192"]
    assert [name for name, _ in sliders["cached"].options] == ["yes", "no"]


def test_a_notebook_gets_the_widget_and_the_text_for_where_no_widget_runs():
    explorer = explore(rows, tokens=(8,), cached=(False,))
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == rows(8, False)
    assert bundle[WIDGET]["model_id"] == explorer._box.model_id and isinstance(explorer._box, ipywidgets.VBox)


def test_without_ipywidgets_the_plain_text_is_left(monkeypatch):
    monkeypatch.setattr("kvedu.viz.explore.find_spec", lambda name: None)
    explorer = explore(rows, tokens=(8, 64), cached=(False,))
    assert explorer.sliders == {} and explorer._repr_mimebundle_() == {"text/plain": rows(8, False)}


def test_importing_it_imports_no_widgets():
    code = "import sys, kvedu.viz.explore; sys.exit('ipywidgets' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_begins_where_it_is_told_with_and_without_widgets(monkeypatch):
    assert explore(rows, start={"tokens": 64}, tokens=(8, 64), cached=(False,)).text == rows(64, False)
    monkeypatch.setattr("kvedu.viz.explore.find_spec", lambda name: None)
    assert explore(rows, start={"tokens": 64}, tokens=(8, 64), cached=(False,)).text == rows(64, False)
    for wrong in ({"tokens": 9}, {"token": 8}):
        with pytest.raises(KveduError, match="cannot start at"):
            explore(rows, start=wrong, tokens=(8, 64), cached=(False,))


def test_an_argument_without_values_is_refused_by_name():
    with pytest.raises(KveduError, match="no values for 'tokens'"):
        explore(rows, tokens=(), cached=(True,))
