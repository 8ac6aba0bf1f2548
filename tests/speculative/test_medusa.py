"""Medusa's heads guess all depths at one stroke from the last verified token's output."""

import pytest
import torch

from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling
from kvedu.speculative.draws import Draws
from kvedu.speculative.medusa import Medusa
from kvedu.speculative.medusa_heads import MedusaHeads, fresh_medusa
from kvedu.speculative.proposer import Ask
from kvedu.speculative.vocabulary import DraftVocabulary
from tiny import random_ids, tiny_config, tiny_model
from tiny_heads import medusa, most_of, shape

MODEL = tiny_model(tiny_config(L=2), scale=0.12)


def ask(ids, limit=9, sampling=Sampling()):
    return Ask("text", tuple(ids), limit, sampling, Draws(sampling))


def fed(proposer, ids, seed=0):
    features_TE = torch.randn(len(ids) - 1, MODEL.config.M, generator=torch.Generator().manual_seed(seed))
    proposer.feed("text", 0, features_TE)
    return features_TE


def test_each_depth_is_its_own_heads_best_among_the_vocabularys_rows():
    proposer, ids = medusa(MODEL, 3, (2, 1, 2)), random_ids(6)
    features_TE = fed(proposer, ids)
    rows, names = most_of(MODEL).rows(MODEL.head.weight), most_of(MODEL).ids
    with torch.inference_mode():
        wanted = [[names[i] for i in (f_M @ rows.T).topk(2).indices] for f_M in proposer.heads(features_TE[-1:])[0]]
        tree = proposer.propose([ask(ids)])[0]
    first, second, third = wanted
    assert tree.tokens == (*first, second[0], second[0], *third, *third)
    assert tree.parents == (-1, -1, 0, 1, 2, 2, 3, 3) and not tree.q
    with torch.inference_mode():
        assert proposer.propose([ask(ids, limit=1)])[0].tokens == tuple(first)


def test_a_drawn_tree_says_what_it_was_drawn_from():
    """C076: siblings are different draws from one distribution that is 0 outside the vocabulary."""
    proposer, ids = medusa(MODEL, 2, (3, 2)), random_ids(6)
    fed(proposer, ids)
    with torch.inference_mode():
        tree = proposer.propose([ask(ids, sampling=Sampling(temperature=1.0, seed=3))])[0]
    assert len(tree) == 9 and set(tree.q) == {-1, 0, 1, 2}
    outside = [i for i in range(97) if i not in most_of(MODEL).place]
    assert not any(q_V[outside].any() for q_V in tree.q.values())


def test_without_the_last_tokens_output_there_is_no_guess():
    proposer, ids = medusa(MODEL, 2), random_ids(6)
    with torch.inference_mode():
        assert not proposer.propose([ask(ids)])[0]
        fed(proposer, ids)
        assert proposer.propose([ask(ids)])[0]
        assert not proposer.propose([ask([*ids, 3])])[0]
        proposer.release("text")
        assert not proposer.propose([ask(ids)])[0]


def test_what_does_not_fit_is_refused_with_the_numbers():
    heads = fresh_medusa(shape(MODEL), MODEL, 2)
    with pytest.raises(RequestError, match="at most 2 depths.*1, 1, 1"):
        Medusa(heads, most_of(MODEL), MODEL, (1, 1, 1))
    with pytest.raises(RequestError, match="guess 65 tokens.*12"):
        Medusa(heads, DraftVocabulary(torch.arange(12), 97), MODEL)
    with pytest.raises(RequestError, match="width 32.*width 40"):
        Medusa(heads, most_of(MODEL), tiny_model(tiny_config(width=40)))
    with pytest.raises(RequestError, match="last block, 2"):
        MedusaHeads(shape(MODEL, (1,)), 2)
