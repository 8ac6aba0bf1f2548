"""MTP's modules: each runs a true pair once, and never goes on from a guess that was not verified."""

import pytest
import torch

from kvedu.caches.concat import ConcatCache
from kvedu.errors import RequestError
from kvedu.model.loops import greedy_uncached
from kvedu.model.sampling import Sampling
from kvedu.speculative.draws import Draws
from kvedu.speculative.mtp import Mtp
from kvedu.speculative.mtp_heads import MtpHeads, fresh_mtp
from kvedu.speculative.proposer import Ask
from kvedu.speculative.speculate import speculate
from kvedu.speculative.vocabulary import DraftVocabulary
from tiny import random_ids, tiny_config, tiny_model
from tiny_heads import most_of, mtp, shape

MODEL = tiny_model(tiny_config(L=2), scale=0.12)
K = 3


def features(ids):
    cache = ConcatCache(MODEL.config)
    with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
        return MODEL.tapped(torch.tensor(ids), view, (2,))[1]


def by_definition(heads, ids):
    """Guesses of the modules run over the whole text, one after the other, guesses appended as they are made."""
    text, guesses, rows = list(ids), [], most_of(MODEL).rows(MODEL.head.weight)
    with torch.inference_mode():
        f_TM = heads.norm(features(ids[:-1]).contiguous())
        for d, step in enumerate(heads.steps):
            cache = ConcatCache(heads.shape.layer)
            with cache.step({cache.add(): len(f_TM)}) as view:
                f_TM = step(MODEL.embed(torch.tensor(text[d + 1 :])), f_TM, view)
            guesses.append(most_of(MODEL).ids[int((f_TM[-1] @ rows.T).argmax())])
            text.append(guesses[-1])
    return guesses


class Compared(Mtp):
    """Holds every round's guesses against the definition, and counts the pairs that each module has run."""

    rounds = 0

    def propose(self, asks):
        trees = super().propose(asks)
        for one, tree in zip(asks, trees):
            assert list(tree.tokens) == by_definition(self.heads, one.ids)[: one.limit]
            text = self._texts[one.key]
            if one.limit >= K:
                assert text.held == [max(len(one.ids) - 1 - d, 0) for d in range(K)]
            assert [cache.length(seq) for cache, seq in zip(self.caches, text.seqs)] == text.held
        self.rounds += 1
        return trees


def test_every_round_guesses_as_the_modules_run_from_scratch():
    """C086, C082: whatever was kept or rejected, each module holds true pairs and nothing else."""
    prompts = [random_ids(9, seed=1), [5], random_ids(6, seed=2)]
    proposer = Compared(fresh_mtp(shape(MODEL), MODEL, K), most_of(MODEL), MODEL)
    done = speculate(MODEL, prompts, proposer, max_new_tokens=24)
    assert [list(one.completion.token_ids) for one in done] == [greedy_uncached(MODEL, p, 24) for p in prompts]
    kept = {r.accepted for one in done for r in one.rounds}
    assert proposer.rounds > 5 and len(kept) > 1
    assert all(cache.sequences == () for cache in proposer.caches)


def test_a_gap_begins_afresh():
    proposer, ids = mtp(MODEL, K), random_ids(12, seed=3)
    rows_TE = features(ids[:-1])
    ask = Ask("text", tuple(ids), 9, Sampling(), Draws(Sampling()))
    with torch.inference_mode():
        proposer.feed("text", 0, rows_TE[:4])
        assert not proposer.propose([ask])[0]
        proposer.feed("text", 10, rows_TE[10:])
        assert len(proposer.propose([ask])[0]) == K


def test_what_does_not_fit_is_refused_with_the_numbers():
    heads = fresh_mtp(shape(MODEL), MODEL, 2)
    with pytest.raises(RequestError, match="guess 65 tokens.*12"):
        Mtp(heads, DraftVocabulary(torch.arange(12), 97), MODEL)
    with pytest.raises(RequestError, match="width 32.*width 40"):
        Mtp(heads, most_of(MODEL), tiny_model(tiny_config(width=40)))
    with pytest.raises(RequestError, match="got 0"):
        MtpHeads(shape(MODEL), 0)
