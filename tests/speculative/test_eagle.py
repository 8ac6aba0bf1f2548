"""EAGLE's head reads the target's features, forgets its own, and begins afresh after a gap."""

import pytest
import torch

from head_unroll import unroll
from kvedu.caches.concat import ConcatCache
from kvedu.caches.none import NoCache
from kvedu.caches.static import StaticCache
from kvedu.errors import RequestError
from kvedu.model.loops import greedy_uncached
from kvedu.model.sampling import Sampling
from kvedu.speculative.draws import Draws
from kvedu.speculative.eagle import Eagle
from kvedu.speculative.eagle_head import HeadShape, fresh_head
from kvedu.speculative.proposer import Ask
from kvedu.speculative.speculate import speculate
from kvedu.speculative.vocabulary import DraftVocabulary
from tiny import random_ids, tiny_config, tiny_model
from tiny_heads import eagle, most_of, shape

TAPS = (1, 2, 3)


def target(**changes):
    return tiny_model(tiny_config(L=3, **changes), scale=0.12)


def features(model, ids, taps=TAPS):
    cache = ConcatCache(model.config)
    with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
        return model.tapped(torch.tensor(ids), view, taps)[1]


def ask(ids, limit=9, key="text", sampling=Sampling()):
    return Ask(key, tuple(ids), limit, sampling, Draws(sampling))


def from_scratch(proposer, model, ids):
    """The guesses of a head that has seen nothing before: all features at once."""
    fresh = Eagle(proposer.head, proposer.reduced.vocabulary, model, proposer.k)
    fresh.feed("text", 0, features(model, ids[:-1]))
    with torch.inference_mode():
        return fresh.propose([ask(ids)])[0].tokens


class Compared(Eagle):
    """Holds every round's guesses against a head rebuilt from scratch."""

    def __init__(self, *args):
        super().__init__(*args)
        self.rounds = 0

    def propose(self, asks):
        trees = super().propose(asks)
        for one, tree in zip(asks, trees):
            assert tree.tokens == from_scratch(self, self.model, list(one.ids))[: one.limit]
            assert self.held(one.key) == len(one.ids) - 1 == self.cache.length(self._texts[one.key].seq)
        self.rounds += 1
        return trees


def test_every_round_guesses_as_a_head_rebuilt_from_scratch():
    """C086: kept tokens are paired with the target's features, each with the token after it; nothing of a guess stays behind."""
    model = target()
    taught = eagle(model, 3, TAPS)
    proposer = Compared(taught.head, taught.reduced.vocabulary, model, 3)
    proposer.model = model
    prompts = [random_ids(7, seed=4), [3]]
    done = speculate(model, prompts, proposer, max_new_tokens=24)
    assert [list(one.completion.token_ids) for one in done] == [greedy_uncached(model, p, 24) for p in prompts]
    assert proposer.rounds >= 5 and any(r.accepted for one in done for r in one.rounds)
    assert proposer.cache.sequences == ()


def test_a_shifted_feature_is_seen_by_the_test_above():
    """The comparison is not idle: with each token paired with the wrong feature the guesses differ."""
    model = target()
    proposer = eagle(model, 3, TAPS)
    ids = random_ids(12, seed=5)
    wrong = Eagle(proposer.head, most_of(model), model, 3)
    rows_TE = features(model, ids[:-1])
    wrong.feed("text", 0, torch.cat((rows_TE[:1], rows_TE[:-1])))
    with torch.inference_mode():
        assert wrong.propose([ask(ids)])[0].tokens != from_scratch(proposer, model, ids)


def test_training_sees_what_drafting_does():
    """The unrolled head of training-time test gives the drafted features, place by place, three deep."""
    model, ids = target(), random_ids(12, seed=3)
    head = fresh_head(shape(model, TAPS), model)
    features_TE = features(model, ids)
    with torch.inference_mode():
        depths = list(unroll(head, model.embed(torch.tensor(ids))[None], features_TE[None], 3))
        cache = ConcatCache(head.shape.layer)
        seq = cache.add()
        for last in range(1, 8):
            cache.truncate(seq, 0)
            with cache.step({seq: last + 1}) as view:
                f_NM = head.step(model.embed(torch.tensor(ids[1 : last + 2])), head.feature(features_TE[: last + 1]), view)[-1:]
            torch.testing.assert_close(f_NM[0], depths[0][0, last], rtol=1e-4, atol=1e-5)
            for d in (1, 2):
                with cache.step({seq: 1}) as view:
                    f_NM = head.step(model.embed(torch.tensor([ids[last + 1 + d]])), f_NM, view)
                torch.testing.assert_close(f_NM[0], depths[d][0, last + d], rtol=1e-4, atol=1e-5)


def test_a_gap_begins_afresh_and_what_is_known_is_not_taken_twice():
    model, ids = target(), random_ids(14, seed=6)
    proposer = eagle(model, 2, TAPS)
    rows_TE = features(model, ids[:-1])
    with torch.inference_mode():
        proposer.feed("text", 0, rows_TE[:8])
        proposer.feed("text", 3, rows_TE[3:8])  # the same prompt again, as after a preemption
        proposer.feed("text", 8, rows_TE[8:])
        assert proposer.propose([ask(ids)])[0].tokens == from_scratch(proposer, model, ids)[:2]
        proposer.feed("late", 6, rows_TE[6:])  # the first six tokens' features were never computed
        assert len(proposer.propose([ask(ids, key="late")])[0]) == 2 and proposer.held("late") == len(ids) - 7
        proposer.feed("gap", 0, rows_TE[:4])
        assert not proposer.propose([ask(ids, key="gap")])[0], "features are missing: no guess"
        proposer.feed("gap", 9, rows_TE[9:])
        assert len(proposer.propose([ask(ids, key="gap")])[0]) == 2 and proposer.held("gap") == len(ids) - 10
        assert not proposer.propose([ask(ids, key="unheard of")])[0]
        again = proposer.propose([ask(ids)])[0]  # asked twice: the guesses were not verified for want of room
        assert again.tokens == from_scratch(proposer, model, ids)[:2]


def test_it_stops_where_its_cache_or_its_positions_end():
    """C080: fewer guesses, then none; the text goes on as plain greedy's."""
    model = target(max_positions=24)
    taught, prompt = eagle(model, 4, TAPS), random_ids(10, seed=7)
    plain = greedy_uncached(model, prompt, 14)
    for cache in (None, StaticCache(taught.head.shape.layer, max_length=15)):
        proposer = Eagle(taught.head, most_of(model), model, 4, cache)
        done = speculate(model, prompt, proposer, max_new_tokens=14)
        assert list(done.completion.token_ids) == plain
        guessed = [r.guessed for r in done.rounds]
        assert guessed[0] == 4 and (cache is None or 0 in guessed)


def test_an_unsure_greedy_chain_ends_early_a_drawn_one_never():
    """C076: how many draws there are must not depend on what was drawn."""
    model, ids = target(), random_ids(10, seed=9)
    head = eagle(model, 4, TAPS).head
    proposer = Eagle(head, most_of(model), model, 4, sure=0.999)
    prompt = random_ids(7, seed=4)
    done = speculate(model, prompt, proposer, max_new_tokens=16)
    assert list(done.completion.token_ids) == greedy_uncached(model, prompt, 16)
    assert min(r.guessed for r in done.rounds) == 1
    with torch.inference_mode():
        proposer.feed("text", 0, features(model, ids[:-1]))
        assert len(proposer.propose([ask(ids, sampling=Sampling(temperature=1.0, seed=1))])[0]) == 4
    with pytest.raises(RequestError, match="sure.*1.5"):
        Eagle(head, most_of(model), model, 4, sure=1.5)


def test_what_was_made_for_another_target_is_refused_with_the_numbers():
    model = target()
    head = fresh_head(shape(model, TAPS), model)
    wide = tiny_model(tiny_config(L=3, width=40))
    with pytest.raises(RequestError, match="width 32.*width 40"):
        Eagle(head, most_of(model), wide)
    with pytest.raises(RequestError, match=r"of 50 token ids.*97"):
        Eagle(head, DraftVocabulary(torch.arange(50), 50), model)
    with pytest.raises(RequestError, match="65 tokens.*12"):
        Eagle(head, DraftVocabulary(torch.arange(12), 97), model)
    with pytest.raises(RequestError, match="k counts"):
        Eagle(head, most_of(model), model, 0)
    with pytest.raises(RequestError, match="cannot take back"):
        Eagle(head, most_of(model), model, 2, NoCache(head.shape.layer))
    with pytest.raises(RequestError, match="blocks from 1 to 3"):
        HeadShape(model.config, (4,), 9)
    with pytest.raises(RequestError, match="width 32.*width 40"):
        speculate(wide, [1, 2], Eagle(head, most_of(model), model), max_new_tokens=2)
