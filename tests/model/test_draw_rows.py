"""Rows drawn together are drawn apart: each gets what ``Sampler.choose`` draws for it alone."""

import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvedu.model.draw_rows as module
from kvedu.kernels.filtered_draw import ROWS
from kvedu.model.draw_rows import Draw, draw_rows, report_row
from kvedu.model.sampling import Sampler, Sampling, distribution, reported


@pytest.fixture(params=["as on a CPU", "as on a GPU"])
def drawn(request, monkeypatch):
    """The two ways in which rows are drawn."""
    if request.param == "as on a GPU":
        monkeypatch.setattr(module, "_is_host", lambda device: False)


def alone(settings_of_rows, logits_RV, seen, times):
    samplers = [Sampler(one) for one in settings_of_rows]
    return [[s.choose(row, ids) for s, row, ids in zip(samplers, logits_RV, seen)] for _ in range(times)]


def together(settings_of_rows, logits_RV, seen, times):
    samplers = [Sampler(one) for one in settings_of_rows]
    return [draw_rows([Draw(s, ids) for s, ids in zip(samplers, seen)], logits_RV).tolist() for _ in range(times)]


def test_every_kind_of_row_in_one_call(drawn):
    """C061, C062: temperatures, filters and penalties side by side, more rows than are ranked at a time, a row of ties; the streams advance alike."""
    kinds = [{}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2}, {"top_k": 9, "top_p": 0.5}, {"repetition_penalty": 1.5}, {"top_p": 0.0}, {"top_k": 500}]
    heats = [1.0, 0.2, 3.0, 1e-5, 0.0]
    asked = [Sampling(temperature=heats[i % 5], seed=i, **kinds[i % 8]) for i in range(3 * ROWS)]
    rows = torch.randn(len(asked), 500, generator=torch.Generator().manual_seed(0))
    rows[3], rows[10] = 0.0, 0.0
    seen = [[int(rows[i].argmax()), 7, 7, i] for i in range(len(asked))]
    wanted = alone(asked, rows, seen, 4)
    assert together(asked, rows, seen, 4) == wanted and len(set(map(tuple, wanted))) > 1


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.sampled_from([1, 2, 8, 1000]),
    heat=st.sampled_from([0.0, 1e-4, 0.3, 1.0, 4.0]),
    top_k=st.sampled_from([0, -1, 1, 2, 12, 13, 40]),
    top_p=st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.5, 1.0]),
    penalty=st.sampled_from([1.0, 0.5, 1.3]),
)
def test_ranked_rows_are_those_of_the_definition(seed, steps, heat, top_k, top_p, min_p, penalty):
    """Ties of all sizes, filters at their edges: the same token from the same number, and never one that the distribution leaves out."""
    generator = torch.Generator().manual_seed(seed)
    rows = (torch.rand(3, 13, generator=generator) * steps).round() / steps * 3
    asked = [Sampling(temperature=heat, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty, seed=seed + i) for i in range(3)]
    seen = [[i, i + 1, 12] for i in range(3)]
    samplers = [Sampler(one) for one in asked]
    with patch.object(module, "_is_host", lambda device: False):
        got = draw_rows([Draw(s, ids) for s, ids in zip(samplers, seen)], rows).tolist()
    assert got == alone(asked, rows, seen, 1)[0]
    assert all(distribution(row, one, ids)[token] > 0 for token, row, one, ids in zip(got, rows, asked, seen))


def test_a_token_that_only_the_device_knows_counts(drawn):
    """A penalty sees it as it sees the others; one of a broken row, -1, does no harm."""
    row = torch.tensor([[2.0, 1.9, 1.0]])
    sampler = Sampler(Sampling(repetition_penalty=2.0))
    assert draw_rows([Draw(sampler)], row).tolist() == [0]
    assert draw_rows([Draw(sampler, [], torch.tensor(0))], row).tolist() == [1]
    assert draw_rows([Draw(sampler, [0], torch.tensor(1))], row).tolist() == [0]
    assert draw_rows([Draw(sampler, [2], torch.tensor(-1))], row).tolist() == [1]


def test_a_broken_row_is_none(drawn):
    """C046: -1 for it, and its neighbours draw what they draw."""
    rows = torch.zeros(8, 5)
    rows[1, 2], rows[3, 0], rows[5], rows[6] = math.nan, math.inf, -math.inf, math.nan
    rows[2, 4] = -math.inf
    asked = [Sampling(temperature=1.0, seed=i, **({"top_k": 3} if i % 2 else {})) for i in range(8)]
    tokens = draw_rows([Draw(Sampler(one)) for one in asked], rows).tolist()
    assert [token == -1 for token in tokens] == [False, True, False, True, False, True, True, False]
    assert [tokens[i] for i in (0, 2, 4, 7)] == [Sampler(asked[i]).choose(rows[i]) for i in (0, 2, 4, 7)]


@pytest.mark.parametrize("tempered", [False, True])
def test_reports_are_those_of_the_sampler(tempered):
    row = torch.tensor([0.3, 2.0, -1.0, 1.5])
    sampler = Sampler(Sampling(temperature=0.5, repetition_penalty=1.4, top_k=2, logprobs=3, tempered_logprobs=tempered))
    numbers = report_row(Draw(sampler, [1]), row, torch.tensor(3))
    assert reported(numbers.tolist()) == sampler.logprob(3, row, [1])
