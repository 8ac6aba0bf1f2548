"""Sampling: every filter at its edges, rows that never disturb each other, seeds that mean what they say."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvedu.errors import RequestError
from kvedu.model.sampling import Sampler, Sampling, choose_batch, distribution, token_logprob


def logits(*values):
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_temperature_zero_in_a_mixed_batch(dtype):
    """C061: temperatures 0 and 1e-4 take the argmax without NaN, and the warm row draws what it draws alone."""
    rows = torch.tensor([[0.0, 0.5, -1.0], [1.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.5]], dtype=dtype)
    temperatures = [0.0, 0.8, 0.0, 1e-4]
    for seed in range(20):
        chosen = choose_batch([Sampler(Sampling(temperature=t, seed=seed)) for t in temperatures], rows, [()] * 4)
        assert [chosen[0], chosen[2], chosen[3]] == [1, 0, 2]
        assert chosen[1] == Sampler(Sampling(temperature=0.8, seed=seed)).choose(rows[1])
    assert torch.isfinite(distribution(rows[3], Sampling(temperature=1e-4))).all()


def test_one_number_of_its_stream_a_draw():
    """However many are taken from the generator at once, they are those that it gives one by one."""
    sampler, generator = Sampler(Sampling(seed=5)), torch.Generator().manual_seed(5)
    one_by_one = [float(torch.rand(1, generator=generator, dtype=torch.float64)) for _ in range(200)]
    assert [sampler.uniform() for _ in range(200)] == one_by_one


@pytest.mark.parametrize("top_k", [0, -1, 1, 10, 11, 50])
@pytest.mark.parametrize("top_p", [0.0, 1e-4, 0.5, 1.0])
@pytest.mark.parametrize("tie", [False, True])
def test_filters_at_their_edges(top_k, top_p, tie):
    """C062: V = 10; 0, -1 and >= 10 filter nothing; one token at least is kept; kept probabilities sum to 1."""
    row = torch.zeros(10) if tie else torch.linspace(2, 0, 10)
    probs = distribution(row, Sampling(temperature=1.0, top_k=top_k, top_p=top_p))
    assert float(probs.sum()) == pytest.approx(1.0)
    kept = int((probs > 0).sum())
    if top_k == 1 or top_p <= 1e-4:
        assert kept == 1 and int(probs.argmax()) == 0
    elif top_p == 1.0:
        assert kept == 10
    else:
        plain = torch.softmax(row.double(), -1)
        mass = plain[probs > 0].sum()
        assert mass >= 0.5 - 1e-12 and mass - plain[probs > 0].min() < 0.5


def test_rows_are_independent():
    """C062: in one mixed batch each row draws what it draws alone."""
    rows = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    settings_ = [Sampling(temperature=1.0, seed=i, top_k=k, top_p=p, min_p=m) for i, (k, p, m) in
                 enumerate([(0, 1, 0), (1, 1, 0), (3, 0.5, 0), (50, 0, 0), (0, 0.9, 0.2), (2, 1, 1)])]
    chosen = choose_batch([Sampler(s) for s in settings_], rows, [()] * 6)
    assert chosen == [Sampler(s).choose(row) for s, row in zip(settings_, rows)]


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=40), top_k=st.integers(0, 41),
    top_p=st.floats(0, 1), min_p=st.floats(0, 1), temperature=st.floats(0.05, 4),
)
def test_distribution_equals_a_plain_sort(values, top_k, top_p, min_p, temperature):
    """The candidate shortcut gives what sorting the whole vocabulary and filtering step by step gives."""
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    scaled = [v / temperature for v in torch.tensor(values, dtype=torch.float32).double().tolist()]
    top = max(scaled)
    weights = [math.exp(v - top) for v in scaled]
    order = sorted(range(len(values)), key=lambda i: (-weights[i], i))
    order = order[: top_k or None]
    total = sum(weights[i] for i in order)
    kept, before = [], 0.0
    for i in order:
        if not kept or (before < top_p - 1e-12 and weights[i] >= min_p * weights[order[0]] * (1 + 1e-12)):
            kept.append(i)
        before += weights[i] / total
    got = distribution(torch.tensor(values), sampling)
    edge = any(abs(c - top_p) < 1e-9 for c in _cumulative([weights[i] / total for i in order]))
    near = any(abs(weights[i] - min_p * weights[order[0]]) < 1e-9 for i in order)
    assert float(got.sum()) == pytest.approx(1)
    if not edge and not near:
        assert set(torch.nonzero(got).flatten().tolist()) == {i for i in kept if weights[i] > 0}


def _cumulative(values):
    total, out = 0.0, []
    for v in values:
        total += v
        out.append(total)
    return out


def test_a_wide_nucleus_over_a_large_vocabulary():
    """A flat row of 20,000 tokens: the short lists do not hold the nucleus, the last one does."""
    row = torch.randn(20_000, generator=torch.Generator().manual_seed(0)) * 0.1
    probs = distribution(row, Sampling(temperature=1.0, top_p=0.9))
    plain = torch.softmax(row.double(), -1).sort(descending=True).values
    wanted = int((plain.cumsum(-1) - plain < 0.9).sum())
    assert int((probs > 0).sum()) == wanted > 8192


def test_draws_follow_the_distribution():
    """20,000 seeded draws: each frequency within 5 standard deviations."""
    row, sampling = logits(1.0, 0.0, -1.0, 2.0), Sampling(temperature=0.7, top_k=3, seed=5)
    wanted = distribution(row, sampling)
    sampler, n = Sampler(sampling), 20_000
    counts = torch.bincount(torch.tensor([sampler.choose(row) for _ in range(n)]), minlength=4)
    assert counts[2] == 0
    for count, p in zip(counts.tolist(), wanted.tolist()):
        assert abs(count - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 1e-9


def test_seeds():
    """C064: copies of one seeded request differ, the set repeats, and two requests of one seed are equal."""
    row = torch.zeros(50)

    def text(copy, seed=42):
        sampler = Sampler(Sampling(temperature=1.0, seed=seed), copy)
        return [sampler.choose(row) for _ in range(8)]

    first = [text(i) for i in range(4)]
    assert len({tuple(t) for t in first}) == 4
    assert first == [text(i) for i in range(4)]
    assert text(0) == text(0) != text(0, seed=43)
    unseeded = [[Sampler(Sampling(temperature=1.0)).choose(torch.zeros(10**6)) for _ in range(2)] for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_logprobs_before_and_after_temperature():
    """C066: raw by default, tempered on request, never divided by T; the sampled token is always listed."""
    row = logits(1.0, 0.0, -1.0, -2.0)
    for tempered, wanted in ((False, (-0.44019, -1.44019)), (True, (-0.14508, -2.14508))):
        values = []
        for top in (0, 1, 4):
            sampling = Sampling(temperature=0.5, top_p=0.9, logprobs=top, tempered_logprobs=tempered)
            report = Sampler(sampling).logprob(1, row)
            assert report.token_id == 1 and len(report.top) == top
            values.append(report.logprob)
            if top:
                assert report.top[0] == (0, pytest.approx(wanted[0], abs=1e-5))
        assert values == [pytest.approx(wanted[1], abs=1e-5)] * 3
    assert Sampler(Sampling()).logprob(0, row) is None
    assert token_logprob(row, 3, 99).top[-1][0] == 3


def test_repetition_penalty():
    """Positive logits are divided, negative ones multiplied, each seen token once however often it was seen."""
    probs = distribution(logits(2.0, -1.0, 0.5), Sampling(temperature=1.0, repetition_penalty=2.0), seen=[0, 1, 0, 0])
    torch.testing.assert_close(probs, torch.softmax(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), -1))
    greedy = Sampler(Sampling(repetition_penalty=2.0))
    assert choose_batch([greedy], logits(1.0, 0.9)[None], [[0]]) == [1]


@pytest.mark.parametrize(
    "bad",
    [dict(temperature=-1), dict(temperature=math.nan), dict(temperature=math.inf), dict(top_k=-2), dict(top_k=1.5),
     dict(top_p=1.1), dict(top_p=-0.1), dict(min_p=2), dict(repetition_penalty=0), dict(logprobs=-1)],
)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(RequestError, match=next(iter(bad))):
        Sampling(**bad)


def test_broken_logits_are_an_error_for_their_row_only():
    rows = torch.tensor([[math.nan, 0.0], [0.0, 1.0]])
    with pytest.raises(RequestError, match="largest logit is not finite"):
        choose_batch([Sampler(Sampling())] * 2, rows, [(), ()])
    with pytest.raises(RequestError, match="not finite"):
        distribution(rows[0], Sampling(temperature=1.0))


def test_what_is_unfiltered():
    kinds = [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=-1), Sampling(top_k=4, top_p=0.1)]
    assert all(one.unfiltered for one in kinds)
    filtered = [Sampling(temperature=1.0, **one) for one in ({"top_k": 4}, {"top_p": 0.9}, {"min_p": 0.1}, {"repetition_penalty": 1.1})]
    assert not any(one.unfiltered for one in filtered) and not Sampling(repetition_penalty=0.9).unfiltered


@pytest.mark.parametrize("k", [1, 255, 256, 257, 1000, 8193, 8999])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_a_large_top_k_keeps_as_many(k, top_p):
    """C062: k tokens stay, however many that is, and the nucleus is taken of their mass."""
    row = torch.randn(9000, generator=torch.Generator().manual_seed(2))
    best = torch.softmax(row.to(torch.float64) / 2, -1).sort(descending=True).values[:k]
    best = best / best.sum()
    wanted = int((best.cumsum(-1) - best < top_p).sum())
    kept = distribution(row, Sampling(temperature=2.0, top_k=k, top_p=top_p))
    assert int((kept > 0).sum()) == wanted and kept.sum().item() == pytest.approx(1)
