"""Every example in the room's docstrings runs as printed."""

import doctest
import importlib
import pkgutil

import pytest

import kvedu.analysis

MODULES = [module.name for module in pkgutil.iter_modules(kvedu.analysis.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"kvedu.analysis.{name}"))
    assert result.failed == 0 and result.attempted > 0
