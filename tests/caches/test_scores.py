"""Each policy on numbers small enough to be scored by hand."""

import pytest
import torch

from kvedu.caches.scores import ALL, Held, h2o, key_norm, random, recent, snapkv, tova, watches
from kvedu.errors import CacheError


def held(S=6, K=2, positions=None, weights=None, k=None):
    k = torch.ones(S, K, 4) if k is None else k
    positions = torch.arange(S)[:, None].expand(S, K) if positions is None else positions
    return Held(k, torch.ones(S, K, 4), positions, torch.zeros(0, S, K) if weights is None else weights)


def test_recent_goes_by_place_in_the_text():
    positions = torch.tensor([[0, 3], [7, 5], [9, 9]])
    assert recent(held(3, positions=positions)).tolist() == [[0, 3], [7, 5], [9, 9]]


def test_key_norm_prefers_small_keys():
    k = torch.tensor([3.0, 1.0, 2.0])[:, None, None].expand(3, 2, 4)
    assert key_norm(held(3, k=k))[:, 0].argsort(descending=True).tolist() == [1, 2, 0]
    assert key_norm(held(3, k=k))[0, 0] == -6  # sqrt(4 * 9)


def test_random_draws_a_tokens_lot_once():
    """The lot depends on the place in the text alone; over many, every quarter of the text is kept alike."""
    positions = torch.arange(4000)[:, None]
    lots = random(held(4000, 1, positions=positions))
    assert torch.equal(random(held(50, 1, positions=positions[100:150])), lots[100:150])
    assert len(lots.unique()) > 3990
    kept = lots[:, 0].argsort()[2000:]
    assert all(abs((kept // 1000 == quarter).sum().item() - 500) < 60 for quarter in range(4))


def test_h2o_adds_up_and_tova_looks_at_the_last():
    weights = torch.rand(1, 6, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(h2o(held(weights=weights)), weights[0])
    assert torch.allclose(tova(held(weights=weights)), weights[0].mean(1, keepdim=True).expand(6, 2))
    assert (h2o.queries, tova.queries, snapkv.queries) == (ALL, 1, 32)


def test_snapkv_credits_the_neighbors():
    """Token 10 draws 1 from each of 32 queries in head 0, token 0 half of it in head 1: they and 3 on either side score."""
    weights = torch.zeros(32, 16, 2)
    weights[:, 10, 0], weights[:, 0, 1] = 1.0, 0.5
    score = snapkv(held(16, weights=weights))
    assert score[:, 0].tolist() == [0.0] * 7 + [32.0] * 7 + [0.0] * 2
    assert score[:, 1].tolist() == [16.0] * 4 + [0.0] * 12


@pytest.mark.parametrize("policy", [h2o, tova, snapkv])
def test_without_weights_a_policy_says_what_it_needs(policy):
    with pytest.raises(CacheError, match=r"decorate the function with @watches\(1\)"):
        policy(held())


@pytest.mark.parametrize("queries", [0, -2])
def test_watching_nothing(queries):
    with pytest.raises(CacheError, match="1 query or more"):
        watches(queries)
