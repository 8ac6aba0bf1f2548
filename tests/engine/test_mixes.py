"""Length mixes: what is drawn has the medians, means and percentiles that were published."""

import statistics
from random import Random

import pytest

from kvedu.engine.metrics import percentile
from kvedu.engine.mixes import ARXIV_SUMMARIZATION, AZURE_CODE, AZURE_CONVERSATION, MIXES, SHAREGPT4, by_mean, by_p90
from kvedu.engine.workload import Lognormal, all_at_once, independent
from kvedu.errors import KveduError


def draws(lengths, n=40_000, seed=1):
    rng = Random(seed)
    return [lengths(rng) for _ in range(n)]


@pytest.mark.parametrize(
    "mix, prompt, output", [(AZURE_CONVERSATION, (1020, 1155), (129, 211)), (AZURE_CODE, (1500, 2048), (13, 28))]
)
def test_medians_and_means_of_the_azure_traces(mix, prompt, output):
    for lengths, (median, mean) in ((mix.prompt, prompt), (mix.output, output)):
        drawn = draws(lengths)
        assert statistics.median(drawn) == pytest.approx(median, rel=0.03)
        assert statistics.mean(drawn) == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize(
    "mix, prompt, output", [(SHAREGPT4, (1730, 5696), (415, 834)), (ARXIV_SUMMARIZATION, (7059, 12985), (208, 371))]
)
def test_medians_and_90th_percentiles_of_sarathi_serves_table(mix, prompt, output):
    for lengths, (median, p90) in ((mix.prompt, prompt), (mix.output, output)):
        drawn = draws(lengths)
        assert statistics.median(drawn) == pytest.approx(median, rel=0.03)
        assert percentile(drawn, 90) == pytest.approx(p90, rel=0.03)
        assert lengths.quantile(0.9) == pytest.approx(p90) and lengths.quantile(0.5) == pytest.approx(median)


def test_a_scaled_mix_keeps_its_shape():
    small = SHAREGPT4.scaled(0.1, longest_prompt=700, longest_output=100)
    assert statistics.median(draws(small.prompt)) == pytest.approx(173, rel=0.03)
    assert max(draws(small.prompt)) == 700 and max(draws(small.output)) == 100 and min(draws(small.output)) >= 1
    assert small.prompt.sigma == SHAREGPT4.prompt.sigma and small.source == SHAREGPT4.source


def test_every_mix_says_where_it_is_from_and_makes_a_workload():
    for mix in MIXES:
        assert mix.source and mix.fitted
        load = independent(all_at_once(5), mix.prompt, mix.output, seed=2)
        assert load == independent(all_at_once(5), mix.prompt, mix.output, seed=2) and len(load) == 5


def test_numbers_that_no_lognormal_has_are_refused():
    for wrong in (lambda: by_mean(10, 9), lambda: by_mean(0, 1), lambda: by_p90(10, 9), lambda: Lognormal(0, 1), lambda: Lognormal(1, -1)):
        with pytest.raises(KveduError):
            wrong()
    assert by_mean(5, 5).sigma == 0 and by_p90(5, 5).quantile(0.99) == 5
