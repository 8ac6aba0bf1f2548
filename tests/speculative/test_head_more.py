"""More text to learn from: greedy ones are plain greedy continuations, drawn ones follow the seed, all end at the limit or at the target's own end."""

import pytest
import torch

from head_more import written
from head_text import Prompt
from kvedu import generate
from kvedu.model.sampling import Sampling
from tiny import random_ids, tiny_config, tiny_model

MODEL = tiny_model(tiny_config(L=2), scale=0.12)
LENGTH = 24


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr("head_more.LENGTH", LENGTH)


def asked(sampling: Sampling) -> list[Prompt]:
    return [Prompt("code", random_ids(n, seed=n), sampling, held_out=False) for n in range(3, 14)]


def test_greedy_texts_are_plain_greedys():
    prompts = asked(Sampling())
    for text, prompt in zip(written(MODEL, prompts, 7), prompts, strict=True):
        plain = generate(MODEL, prompt.ids, max_new_tokens=LENGTH - len(prompt.ids))
        assert text == [*prompt.ids, *plain.token_ids]


def test_drawn_texts_follow_the_seed():
    prompts = asked(Sampling(temperature=1.0))
    first, again, other = (written(MODEL, prompts, seed) for seed in (7, 7, 8))
    assert first == again != other
    ends = MODEL.config.eos_ids
    assert all(len(text) == LENGTH or text[-1] in ends for text in first)
    assert all(torch.tensor(text).max() < MODEL.config.V for text in first)
