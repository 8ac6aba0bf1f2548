"""The evaluation on the real model: what the full cache can do, what a window loses, and that easy tasks hide it."""

import pytest
import torch

import kvedu
from kvedu import ConcatCache, PagedCache, QuantizedCache, StreamingCache
from kvedu.caches.formats import integer
from kvedu.compress.evaluate.needles import THINGS, needle_quizzes
from kvedu.compress.evaluate.predict import predictions
from kvedu.compress.evaluate.quiz import accuracy, answer
from kvedu.texts import read


@pytest.fixture(scope="module")
def model():
    return kvedu.load(dtype=torch.float32, device="cpu").pack()


def streaming(config):
    return StreamingCache(config, window=60, sinks=4)


def test_easy_tasks_hide_what_recall_shows(model):
    """64 tokens held of 192: perplexity hardly moves; of needles outside of the window none is found, inside all."""
    ids = model.tokenizer.encode(read("prose"))[:193]
    makes = {
        "same": lambda config: PagedCache(config, n_pages=26, page_size=8),
        "int8": lambda config: QuantizedCache(config, keys=integer(8, 64), values=integer(8, 64)),
        "streaming": streaming,
    }
    found = predictions(model, ids, makes, chunk=32)
    assert found["same"].kl < 1e-6 and found["same"].agreement == 1
    assert 0 < found["int8"].kl < 0.01 and abs(found["int8"].loss) < 0.005
    assert 0.005 < found["streaming"].kl and abs(found["streaming"].loss) < 0.25

    quizzes = needle_quizzes(model.tokenizer.encode, (192,), (0.25, 0.5, 1.0), n=2)
    full, small = (answer(model, quizzes, make) for make in (ConcatCache, streaming))
    assert accuracy(full) == 1
    assert accuracy(small[:4]) == 0 and accuracy(small[4:]) == 1


def test_things_are_short(model):
    assert all(len(model.tokenizer.encode(f" {thing}")) <= 2 for thing in THINGS)
    assert len(set(THINGS)) == len(THINGS)
