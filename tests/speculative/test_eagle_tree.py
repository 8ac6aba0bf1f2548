"""EAGLE-2: the tree grows where the head is sure, and keeps the most probable nodes."""

import pytest
import torch

from kvedu.caches.concat import ConcatCache
from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling
from kvedu.speculative.draws import Draws
from kvedu.speculative.eagle_tree import EagleTree
from kvedu.speculative.proposer import Ask
from tiny import random_ids, tiny_config, tiny_model
from tiny_heads import eagle, most_of

MODEL = tiny_model(tiny_config(L=2), scale=0.12)
IDS = random_ids(10, seed=8)


@pytest.fixture(scope="module")
def head():
    return eagle(MODEL, 3).head


def features():
    cache = ConcatCache(MODEL.config)
    with torch.inference_mode(), cache.step({cache.add(): len(IDS) - 1}) as view:
        return MODEL.tapped(torch.tensor(IDS[:-1]), view, (2,))[1]


def tree_of(head, depth, width, nodes, sampling=Sampling()):
    proposer = EagleTree(head, most_of(MODEL), MODEL, depth, width, nodes)
    proposer.feed("text", 0, features())
    with torch.inference_mode():
        return proposer.propose([Ask("text", tuple(IDS), 9, sampling, Draws(sampling))])[0]


def log_q(head, path):
    """Draft log-probability of a path, each token by a chain of its own from scratch."""
    rows, total = most_of(MODEL).rows(MODEL.head.weight), 0.0
    with torch.inference_mode():
        cache = ConcatCache(head.shape.layer)
        seq = cache.add()
        with cache.step({seq: len(IDS) - 1}) as view:
            f_NM = head.step(MODEL.embed(torch.tensor(IDS[1:])), head.feature(features()), view)[-1:]
        for i, token in enumerate(path):
            total += float(torch.log_softmax(f_NM[0] @ rows.T, -1)[most_of(MODEL).place[token]])
            if i + 1 < len(path):
                with cache.step({seq: 1}) as view:
                    f_NM = head.step(MODEL.embed(torch.tensor([token])), f_NM, view)
    return total


def test_the_best_nodes_of_the_grown_tree_are_kept(head):
    """Against the whole tree with each path scored by itself: the kept ones are the most probable."""
    whole, kept = tree_of(head, 3, 2, 99), tree_of(head, 3, 2, 5)
    assert len(whole) == 2 + 4 + 4 and len(kept) == 5 and kept.depth <= 3
    score = {tuple(whole.tokens[i] for i in whole.path(node)): 0.0 for node in range(len(whole))}
    score = {path: log_q(head, path) for path in score}
    best = sorted(score, key=score.__getitem__, reverse=True)[:5]
    assert {tuple(kept.tokens[i] for i in kept.path(node)) for node in range(5)} == set(best)
    grown = {path[:1] for path in score if len(path) == 2}
    assert len(grown) == 2
    second = sorted((path for path in score if len(path) == 2), key=score.__getitem__, reverse=True)[:2]
    assert {path[:2] for path in score if len(path) == 3} == set(second), "the two best of level two have children"


def test_other_requests_get_a_chain_of_draws(head):
    tree = tree_of(head, 3, 2, 5, Sampling(temperature=0.9, seed=1))
    assert tree.is_chain and len(tree) == 3 and set(tree.q) == {-1, 0, 1}


def test_settings_out_of_range_are_refused(head):
    for width, nodes in ((0, 4), (2, 0)):
        with pytest.raises(RequestError, match=f"width {width}, nodes {nodes}"):
            EagleTree(head, most_of(MODEL), MODEL, 3, width, nodes)
