"""One law over every proposer: whatever it guesses, the text is the target's own."""

from __future__ import annotations

import pytest
import torch

from cache_cases import CACHES
from every_draw import distance, every_outcome
from kvedu.caches.none import NoCache
from kvedu.caches.paged import PagedCache
from kvedu.caches.static import StaticCache
from kvedu.model.generate import generate
from kvedu.model.loops import greedy_uncached
from kvedu.model.request import make_request
from kvedu.model.sampling import Sampling, distribution
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.speculate import speculate
from kvedu.speculative.speculation import Speculation
from kvedu.speculative.tree import TokenTree
from kvedu.speculative.verify import Verdict, exact
from proposer_cases import PROPOSERS, near
from tiny import random_ids, tiny_config, tiny_model

every_proposer = pytest.mark.parametrize("name", PROPOSERS)
PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], random_ids(3, seed=1), [7], random_ids(13, seed=2)]


def looping_model(**config):
    """Small enough weights for greedy text that soon goes in circles, as n-grams like it."""
    return tiny_model(tiny_config(**config), scale=0.12)


@every_proposer
@pytest.mark.parametrize("cache", ["concat", "static", "paged 4"])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_greedy_text_is_plain_greedy(name, cache, k):
    """C012, C082: alone and together, token for token; every cache is left with each text but its last token."""
    model = looping_model()
    plain = [greedy_uncached(model, prompt, 32) for prompt in PROMPTS]
    proposer, kept = PROPOSERS[name](model, k), CACHES[cache](model.config)
    together = speculate(model, PROMPTS, proposer, max_new_tokens=32, cache=kept, keep=True)
    for prompt, wanted, one in zip(PROMPTS, plain, together):
        assert list(one.completion.token_ids) == wanted and one.completion.finish_reason == "length"
        assert sum(r.emitted for r in one.rounds) == 31  # the prefill yields the first token
        assert all(r.accepted <= r.guessed and r.emitted <= r.accepted + 1 for r in one.rounds)
        assert kept.length(one.completion.seq) == len(prompt) + 31
        kept.free(one.completion.seq)
    alone = speculate(model, PROMPTS[0], proposer, max_new_tokens=32, cache=kept)
    assert list(alone.completion.token_ids) == plain[0] and kept.sequences == ()


@every_proposer
def test_the_law_above_is_not_idle(name):
    """Of the proposers some guess well and some badly; each must have guessed, and been right or wrong as befits it."""
    runs = speculate(looping_model(), PROMPTS, PROPOSERS[name](looping_model(), 3), max_new_tokens=32)
    rounds = [r for run in runs for r in run.rounds]
    guessed, accepted = sum(r.guessed for r in rounds), sum(r.accepted for r in rounds)
    assert guessed > 0
    if name == "draft: itself":
        assert all(r.accepted == r.depth for r in rounds)
    elif "stranger" in name:
        assert accepted < guessed / 2
    else:
        assert 0 < accepted
    if "tree" in name:
        assert any(r.guessed > r.depth for r in rounds)


@every_proposer
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("kind", ["static", "paged"])
def test_the_cache_holds_what_plain_decoding_would_have_left(name, kind, window):
    """C082: after many rollbacks the keys and values of every layer are those of the text run once, and storage has not moved."""
    model = looping_model(sliding_window=window)
    config = model.config
    cache = StaticCache(config, max_sequences=2, max_length=64) if kind == "static" else PagedCache(config, n_pages=20, page_size=4)
    where = [x.data_ptr() for x in (*cache.k, *cache.v)]
    done = speculate(model, PROMPTS[:2], PROPOSERS[name](model, 4), max_new_tokens=24, cache=cache, keep=True)
    for one in done:
        ids, seq = [*one.completion.prompt_ids, *one.completion.token_ids][:-1], one.completion.seq
        judge = CACHES["concat"](config)
        with torch.inference_mode(), judge.step({judge.add(): len(ids)}) as view:
            model.hidden(torch.tensor(ids), view)
        assert cache.length(seq) == len(ids) and cache._positions[seq] == list(range(len(ids)))
        for layer in range(config.L):
            for got, wanted in zip(cache._read(layer, seq, len(ids)), judge._read(layer, 0, len(ids))):
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert [x.data_ptr() for x in (*cache.k, *cache.v)] == where


# -- sampled text: exact distributions, by taking every branch of every draw -------------------------

V = 3
PROMPT = [1, 2, 1, 2]
SETTINGS = [
    Sampling(temperature=0.8),
    Sampling(temperature=1.3, top_p=0.9),
    Sampling(temperature=0.9, top_k=2, repetition_penalty=1.3),
]


def small_target():
    return tiny_model(tiny_config(H=2, K=1, D=8, L=2, V=V), seed=4, scale=0.15)


def plain_distribution(model, sampling, new=4):
    """Probability of each completion of ``new`` tokens under plain sampling: the product of its tokens' own."""
    found = {(): 1.0}
    for _ in range(new):
        longer = {}
        for text, probability in found.items():
            cache, ids = NoCache(model.config), [*PROMPT, *text]
            with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
                logits_1V = model(torch.tensor(ids), view, view.last_rows)
            for token, p in enumerate(distribution(logits_1V[0], sampling, ids).tolist()):
                if p > 0:
                    longer[*text, token] = probability * p
        found = longer
    return found


def speculative_distribution(model, proposer, sampling, rule=exact, new=4):
    """The same, by running the whole loop once for every branch of every draw."""

    def run(draws):
        request = make_request(PROMPT, model.config, None, new, sampling=sampling)
        speculation = Speculation(model, [request], proposer, rule=rule)
        speculation.draws = lambda sampling, copy: draws
        for _ in speculation.stream():
            pass
        return speculation.completions[0, 0].token_ids

    return every_outcome(run)


@every_proposer
@pytest.mark.parametrize("sampling", SETTINGS, ids=["T", "top-p", "top-k, penalty"])
def test_sampled_text_is_distributed_as_the_targets(name, sampling):
    """C076: every completion of 4 tokens has the probability that plain sampling gives it, to rounding of logits.

    Trees have many more branches: two of their levels where top-k leaves two tokens, one level (3 tokens) elsewhere.
    """
    model = small_target()
    new = 3 if "tree" in name and not sampling.top_k else 4
    wanted = plain_distribution(model, sampling, new)
    got = speculative_distribution(model, PROPOSERS[name](model, 2), sampling, new=new)
    assert len(wanted) > 10 and distance(got, wanted) < 1e-5


class WrongScores(Proposer):
    """Picks the draft's best token and says that it drew it."""

    def __init__(self, right: DraftModel) -> None:
        self.right = right

    def propose(self, asks):
        trees = self.right.propose(asks)
        return [TokenTree.chain([int(q.argmax()) for q in tree.q.values()], list(tree.q.values())) for tree in trees]

    def release(self, key):
        self.right.release(key)


def forgets_the_residual(tree, target, draws):
    path = []
    for i, token in enumerate(tree.tokens):
        if not draws.happens(float(target.p(i - 1)[token] / tree.q[i - 1][token])):
            break
        path.append(i)
    return Verdict(tuple(path), draws.pick(target.p(len(path) - 1)))


def accepts_everything(tree, target, draws):
    return Verdict(tuple(range(len(tree))), draws.pick(target.p(len(tree) - 1)))


def bonus_from_the_wrong_row(tree, target, draws):
    verdict = exact(tree, target, draws)
    if tree and len(verdict.path) == len(tree):
        return Verdict(verdict.path, draws.pick(target.p(len(tree) - 2)))
    return verdict


@pytest.mark.parametrize("rule", [forgets_the_residual, accepts_everything, bonus_from_the_wrong_row])
def test_the_law_sees_a_wrong_verifier(rule):
    """C076: three planted bugs, each far outside the law's tolerance."""
    model = small_target()
    got = speculative_distribution(model, DraftModel(near(model), 2), SETTINGS[0], rule, new=3)
    assert distance(got, plain_distribution(model, SETTINGS[0], new=3)) > 1e-3


def test_the_law_sees_a_draft_that_misreports():
    model = small_target()
    got = speculative_distribution(model, WrongScores(DraftModel(near(model), 2)), SETTINGS[0], new=3)
    assert distance(got, plain_distribution(model, SETTINGS[0], new=3)) > 1e-3


@every_proposer
def test_same_seed_same_text(name):
    model = looping_model()
    runs = [
        speculate(model, PROMPTS[:2], PROPOSERS[name](model, 3), max_new_tokens=16, sampling=Sampling(temperature=0.9, seed=seed))
        for seed in (3, 3, 4)
    ]
    texts = [[one.completion.token_ids for one in run] for run in runs]
    assert texts[0] == texts[1] != texts[2]


@every_proposer
def test_logprobs_are_plain_ones(name):
    """C066: what is reported of a token is the target's own log-probability, guessed or not."""
    model = looping_model()
    asked = Sampling(logprobs=2)
    plain = generate(model, PROMPTS[0], max_new_tokens=16, sampling=asked)
    guessed = speculate(model, PROMPTS[0], PROPOSERS[name](model, 3), max_new_tokens=16, sampling=asked).completion
    for a, b in zip(plain.logprobs, guessed.logprobs, strict=True):
        assert a.token_id == b.token_id and a.logprob == pytest.approx(b.logprob, abs=1e-4)
        assert [i for i, _ in a.top] == [i for i, _ in b.top]
