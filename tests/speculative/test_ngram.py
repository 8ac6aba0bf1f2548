"""Prompt lookup: what is found, what is not, and that the end of the text never finds itself."""

import random

import pytest

from kvedu.errors import RequestError
from kvedu.model.loops import greedy_uncached
from kvedu.model.sampling import Sampling
from kvedu.speculative.draws import Draws
from kvedu.speculative.ngram import NGram
from kvedu.speculative.proposer import Ask
from kvedu.speculative.speculate import speculate
from scripted import Scripted
from tiny import random_ids, tiny_config, tiny_model


def guess(ids, proposer, limit=99, key=0):
    return list(proposer.propose([Ask(key, ids, limit, Sampling(), Draws(Sampling(seed=0)))])[0].tokens)


def by_scanning(ids, k, longest, shortest):
    """The rule, written as a scan of the whole text."""
    for n in range(longest, shortest - 1, -1):
        for end in range(len(ids) - 1, n - 1, -1):
            if ids[end - n : end] == ids[len(ids) - n :]:
                text = list(ids)
                for i in range(k):
                    text.append(text[end + i])
                return text[len(ids) :]
    return []


@pytest.mark.parametrize(
    "ids, wanted",
    [
        ([1, 2, 3, 4, 9, 1, 2, 3], [4, 9, 1]),  # the 3-gram
        ([5, 2, 7, 6, 2, 8, 2], [8, 2, 8]),  # the latest of two places, and on into its own beginning
        ([1, 2, 3, 7, 9, 3, 8, 2, 3], [7, 9, 3]),  # the longer match counts, not the later one
        ([4, 4, 4], [4, 4, 4]),  # a cycle of one
        ([1, 2, 3], []),  # the end is the only match: it does not count
        ([1], []),
    ],
)
def test_what_is_guessed(ids, wanted):
    """C085: longest n first, latest place first, never the text's own end."""
    assert guess(ids, NGram(k=3)) == wanted


@pytest.mark.parametrize("longest, shortest", [(1, 1), (2, 1), (4, 2), (4, 4)])
def test_index_equals_a_scan(longest, shortest):
    """Texts that grow in jumps, several at a time; at most k and at most the limit is guessed."""
    rng = random.Random(0)
    proposer, texts = NGram(5, longest, shortest), {key: [rng.randrange(3)] for key in range(3)}
    found = 0
    for _ in range(60):
        for key, ids in texts.items():
            limit = rng.randint(1, 7)
            wanted = by_scanning(ids, min(5, limit), longest, shortest)
            assert guess(tuple(ids), proposer, limit, key) == wanted
            found += bool(wanted)
            ids += [rng.randrange(3) for _ in range(rng.randint(1, 4))]
    assert found > 20
    for key in texts:
        proposer.release(key)
    assert proposer._texts == {}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("k", [1, 4, 10])
def test_output_is_plain_greedy(n, k):
    """C085: repeated pattern with two continuations, only a self-match, matches inside generated text."""
    model = tiny_model(tiny_config(), scale=0.12)
    for prompt in ([1, 2, 3, 50, 1, 2, 3, 60, 1, 2, 3], [1, 2, 3], random_ids(9)):
        done = speculate(model, prompt, NGram(k, longest=n), max_new_tokens=40)
        assert list(done.completion.token_ids) == greedy_uncached(model, prompt, 40)
        assert max(r.guessed for r in done.rounds) <= k


def test_fewer_passes_on_text_that_repeats():
    """A text that goes in a circle of five: once it has come round, every guess is right."""
    script = {position: 20 + position % 5 for position in range(80)}
    done = speculate(Scripted(script), [1, 2, 3], NGram(4), max_new_tokens=60)
    assert list(done.completion.token_ids) == [script[2 + i] for i in range(60)]
    before = [r for r in done.rounds if r.guessed == 0]
    assert len(before) == 5 and all(r.accepted == r.depth for r in done.rounds)
    assert len(done.rounds) == 5 + -(-(59 - 5) // 5)


@pytest.mark.parametrize("settings", [dict(k=0), dict(shortest=0), dict(longest=1, shortest=2)])
def test_settings_out_of_range(settings):
    with pytest.raises(RequestError, match="k must be 1 or more"):
        NGram(**settings)
