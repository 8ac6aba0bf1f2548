"""Training pooled attention to imitate the original: it learns, only where it should, and can be continued."""

import pytest
import torch
from tiny import tiny_config, tiny_model

from kvedu.compress.imitate import Schedule, imitate
from kvedu.compress.pool_heads import pool_kv_heads
from kvedu.errors import ConfigError

SCHEDULE = Schedule(epochs=4, batch=4)


@pytest.fixture
def original():
    return tiny_model(tiny_config(H=4, K=4, L=3))


@pytest.fixture
def ids_BT():
    return torch.randint(0, 97, (12, 16), generator=torch.Generator().manual_seed(0))


def test_every_layer_gets_closer_and_only_attention_changes(original, ids_BT):
    model = pool_kv_heads(original, 1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    untouched = {name: p.detach().clone() for name, p in original.named_parameters()}
    results = list(imitate(original, model, ids_BT, SCHEDULE))
    assert [result.layer for result in results] == [0, 1, 2]
    assert all(result.after < result.before for result in results)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) != (".attn." in name), name
    assert all(torch.equal(p, untouched[name]) for name, p in original.named_parameters())


def test_a_model_equal_to_the_original_has_nothing_to_learn(original, ids_BT):
    for result in imitate(original, pool_kv_heads(original, 4), ids_BT, Schedule(epochs=1, rate=0.0)):
        assert result.before < 1e-10 and result.after < 1e-10


def test_streams_are_those_of_the_models(original, ids_BT):
    """What leaves the last layer is what a whole forward pass gives, for the original and for the trained model."""
    from kvedu.caches.none import NoCache

    model = pool_kv_heads(original, 1)
    *_, last = imitate(original, model, ids_BT, SCHEDULE)
    for one, stream_BTM in ((model, last.x_BTM), (original, last.y_BTM)):
        cache = NoCache(one.config)
        with torch.inference_mode(), cache.step({cache.add(): 16 for _ in range(12)}) as view:
            hidden_NM = one.hidden(ids_BT.flatten(), view)
        torch.testing.assert_close(stream_BTM.flatten(0, 1), hidden_NM, rtol=1e-4, atol=1e-4)


def test_stopped_and_continued_equals_never_stopped(original, ids_BT):
    whole, parts = pool_kv_heads(original, 1), pool_kv_heads(original, 1)
    list(imitate(original, whole, ids_BT, SCHEDULE))
    done = next(imitate(original, parts, ids_BT, SCHEDULE))
    list(imitate(original, parts, ids_BT, SCHEDULE, done))
    for (name, a), b in zip(whole.named_parameters(), parts.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_other_models_and_packed_ones_are_refused(original, ids_BT):
    with pytest.raises(ConfigError, match="the same but for their KV heads"):
        next(imitate(original, tiny_model(tiny_config(H=4, K=1, L=2)), ids_BT, SCHEDULE))
    model = pool_kv_heads(original, 1)
    original.pack()
    if original.layers[0].attn.qkv.weight is None:
        with pytest.raises(ConfigError, match="unpack"):
            next(imitate(original, model, ids_BT, SCHEDULE))
