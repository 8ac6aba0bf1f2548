"""Prediction through a cache: against the sliding window without one, against the full cache, and by hand."""

import math

import pytest
import torch
from tiny import random_ids, tiny_config, tiny_model

from kvedu import ConcatCache, EvictingCache, NoCache, QuantizedCache, WindowCache
from kvedu.caches.formats import integer
from kvedu.caches.scores import recent
from kvedu.compress.evaluate.predict import kl_to_full, losses_through, perplexity_through, predictions
from kvedu.compress.perplexity import token_losses
from kvedu.errors import RequestError

IDS = random_ids(41)


def window(config):
    return WindowCache(config, window=8)


@pytest.fixture
def model():
    return tiny_model(tiny_config())


@pytest.mark.parametrize("span, stride", [(None, None), (16, 8), (16, 15), (12, None), (41, 20), (100, 3)])
@pytest.mark.parametrize("chunk", [1, 5, 16, None])
def test_a_cache_that_loses_nothing_gives_the_losses_without_one(model, chunk, span, stride):
    wanted = token_losses(model, IDS, span or 41, stride or (span or 41) // 2)
    got = losses_through(model, IDS, ConcatCache, chunk=chunk, window=span, stride=stride)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert perplexity_through(model, IDS, ConcatCache, chunk=chunk, window=span, stride=stride) == pytest.approx(
        math.exp(wanted.double().mean()), rel=1e-4
    )


def test_each_token_sees_what_the_cache_still_holds(model):
    """A window of 8: the loss of a token is that of a text that begins 8 tokens before it, layer by layer, so run by hand."""
    cache = WindowCache(model.config, window=8)
    seq, wanted = cache.add(), []
    with torch.inference_mode():
        for token, following in zip(IDS, IDS[1:]):
            with cache.step({seq: 1}) as view:
                logits = model(torch.tensor([token]), view)[0]
            wanted.append(-torch.log_softmax(logits, -1)[following].item())
    assert losses_through(model, IDS, window, chunk=1).tolist() == pytest.approx(wanted, rel=1e-4)
    assert perplexity_through(model, IDS, window, chunk=1) != pytest.approx(perplexity_through(model, IDS, ConcatCache), rel=1e-3)


def test_divergence_by_hand(model):
    """KL, agreement and both perplexities from logits that two caches gave token by token."""
    full, small = ConcatCache(model.config), window(model.config)
    rows = []
    with torch.inference_mode():
        for cache in (full, small):
            seq, logits = cache.add(), []
            for token in IDS[:-1]:
                with cache.step({seq: 1}) as view:
                    logits.append(torch.log_softmax(model(torch.tensor([token]), view)[0].double(), -1))
            rows.append(torch.stack(logits))
    p, q = rows
    nll = [-r[range(40), IDS[1:]].mean().item() for r in rows]
    got = predictions(model, IDS, {"small": window}, chunk=1)["small"]
    assert got.kl == pytest.approx((p.exp() * (p - q)).sum(-1).mean().item(), rel=1e-4) and got.kl > 0.01
    assert got.agreement == (p.argmax(-1) == q.argmax(-1)).double().mean().item() < 1
    assert [got.full_perplexity, got.perplexity] == pytest.approx([math.exp(x) for x in nll], rel=1e-4)
    assert got.loss == pytest.approx(math.exp(nll[1] - nll[0]) - 1, rel=1e-3)


@pytest.mark.parametrize("chunk", [1, 7, None])
def test_the_identity_cache_diverges_by_nothing(model, chunk):
    assert kl_to_full(model, IDS, ConcatCache, chunk=chunk) == 0
    assert predictions(model, IDS, {"same": ConcatCache}, chunk=chunk)["same"].agreement == 1


def test_fewer_bits_diverge_more(model):
    makes = {
        str(bits): lambda config, bits=bits: QuantizedCache(config, keys=integer(bits, 8), values=integer(bits, 8))
        for bits in (2, 4, 8)
    }
    found = predictions(model, IDS, makes, chunk=1)
    assert 0 < found["8"].kl < found["4"].kl < found["2"].kl
    assert {p.full_perplexity for p in found.values()} == {found["8"].full_perplexity}


def test_a_chunk_hides_eviction_until_it_ends(model):
    def make(config):
        return EvictingCache(config, budget=8, score=recent)

    assert kl_to_full(model, IDS, make, chunk=None) < 1e-6 < 1e-2 < kl_to_full(model, IDS, make, chunk=1)


@pytest.mark.parametrize(
    "ids, how, says",
    [
        ([5], {}, "at least 2"),
        ([5, 97], {}, "0 .. 96"),
        ([5, 6, 7], {"window": 2, "stride": 2}, "stride"),
        ([5, 6, 7], {"window": 1}, "stride"),
        ([5, 6, 7], {"chunk": 0}, "at least 1 token"),
    ],
)
def test_what_cannot_be_scored_is_refused(model, ids, how, says):
    with pytest.raises(RequestError, match=says):
        losses_through(model, ids, ConcatCache, **how)


def test_make_must_make_a_cache(model):
    with pytest.raises(RequestError, match="must return a cache, not ABCMeta"):
        losses_through(model, IDS, lambda config: NoCache)
