"""The progress line: off where nobody looks, tqdm's where it is installed, a plain one where it is not."""

import builtins
import io
import sys

import pytest

from engines import engine_of, solo
from kvedu.engine.progress import Progress
from tiny import random_ids, tiny_model


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def no_tqdm(monkeypatch):
    found = builtins.__import__
    refuse = lambda name, *a, **k: (_ for _ in ()).throw(ImportError(name)) if name == "tqdm" else found(name, *a, **k)
    monkeypatch.setattr(builtins, "__import__", refuse)


def shown(monkeypatch, stream, total=3, show=None):
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(total, "requests", show) as report:
        for _ in range(total):
            report(1)
    return stream.getvalue()


def test_plain(monkeypatch, no_tqdm):
    text = shown(monkeypatch, Terminal())
    assert text.endswith("\rrequests 3/3\n") and text.count("\n") == 1


def test_only_where_somebody_looks(monkeypatch, no_tqdm):
    assert shown(monkeypatch, io.StringIO()) == ""  # not a terminal
    assert shown(monkeypatch, Terminal(), total=1) == ""  # nothing to wait for
    assert shown(monkeypatch, Terminal(), show=False) == ""
    assert "3/3" in shown(monkeypatch, io.StringIO(), show=True)


def test_tqdm_where_it_is_installed(monkeypatch):
    pytest.importorskip("tqdm")
    assert "requests: 100%" in shown(monkeypatch, io.StringIO(), show=True)


def test_generate_counts_requests(monkeypatch, no_tqdm):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    model = tiny_model()
    got = engine_of(model).generate([random_ids(3, seed=i) for i in range(5)], max_new_tokens=4, progress=True)
    assert [c.token_ids for c in got] == [solo(model, random_ids(3, seed=i), 4) for i in range(5)]
    assert stream.getvalue().endswith("requests 5/5\n")
