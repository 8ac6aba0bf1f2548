"""Pooling and repeating KV heads: what changes, what must not, and what is refused."""

import pytest
import torch
from tiny import random_ids, tiny_config, tiny_model

from kvedu.caches.none import NoCache
from kvedu.caches.static import StaticCache
from kvedu.compress.pool_heads import first, fresh, mean, pool_kv_heads
from kvedu.compress.repeat_heads import repeat_kv_heads
from kvedu.errors import ConfigError

KINDS = {
    "plain": {},
    "tied": {"tied": True},
    "qwen2": {"family": "qwen2", "qkv_bias": True},
    "qwen3": {"family": "qwen3", "qk_norm": True},
    "window": {"family": "mistral", "sliding_window": 3},
}


def logits(model, ids):
    cache = NoCache(model.config, dtype=model.dtype)
    with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
        return model(torch.tensor(ids), view)


def heads(model, layer=0):
    """A layer's projections by head: ``q_HDM``, ``k_KDM``, ``v_KDM``."""
    config = model.config
    sizes = (config.H, config.K, config.K)
    return model.layers[layer].attn.qkv.weight.detach().unflatten(0, (sum(sizes), config.D)).split(sizes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("H, K", [(9, 3), (8, 2), (6, 1), (4, 4)])
def test_repeated_heads_change_no_logit(kind, H, K):
    """C001: repeated in place; tiled ones fail here for every group ratio above 1 with more than one KV head."""
    model = tiny_model(tiny_config(H=H, K=K, **KINDS[kind]))
    expanded = repeat_kv_heads(model)
    assert expanded.config.attention_kind == "MHA"
    ids = random_ids(11)
    torch.testing.assert_close(logits(expanded, ids), logits(model, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("H, K, k", [(9, 9, 3), (12, 6, 2), (8, 4, 1), (9, 3, 3)])
def test_pooling_undoes_repeating(kind, H, K, k):
    """Heads that are copies of one another pool into themselves, for the mean and for the first."""
    model = tiny_model(tiny_config(H=H, K=k, **KINDS[kind]))
    for pool in (mean, first):
        back = pool_kv_heads(repeat_kv_heads(model, K), k, pool)
        assert back.config == model.config
        torch.testing.assert_close(logits(back, random_ids(9)), logits(model, random_ids(9)), rtol=1e-5, atol=1e-5)


def test_mean_is_the_mean_of_neighbors_and_nothing_else_changes():
    model = tiny_model(tiny_config(H=12, K=6, qkv_bias=True, family="qwen2"))
    pooled = pool_kv_heads(model, 2)
    old_q, old_k, old_v = heads(model)
    new_q, new_k, new_v = heads(pooled)
    assert torch.equal(new_q, old_q)
    for new, old in ((new_k, old_k), (new_v, old_v)):
        torch.testing.assert_close(new[0], (old[0] + old[1] + old[2]) / 3)
        torch.testing.assert_close(new[1], (old[3] + old[4] + old[5]) / 3)
    old_bias, new_bias = (m.layers[1].attn.qkv.bias.detach().view(-1, 8) for m in (model, pooled))
    torch.testing.assert_close(new_bias[12], old_bias[12:15].mean(0))
    torch.testing.assert_close(new_bias[15], old_bias[21:24].mean(0))
    old_state, new_state = dict(model.named_parameters()), dict(pooled.named_parameters())
    for name in old_state:
        assert ".qkv." in name or torch.equal(old_state[name], new_state[name]), name


def test_first_drops_the_others_and_fresh_keeps_none():
    model = tiny_model(tiny_config(H=4, K=4))
    _, k_KDM, _ = heads(model)
    assert torch.equal(heads(pool_kv_heads(model, 2, first))[1], k_KDM[[0, 2]])
    one, again, other = (heads(pool_kv_heads(model, 2, fresh(seed)))[1] for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert 0.5 < one.std() / k_KDM.std() < 2


def test_a_rewrite_shares_no_memory_and_keeps_the_old_model_as_it_was():
    model = tiny_model(tiny_config(H=4, K=4, tied=True))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    pooled = pool_kv_heads(model, 1)
    assert pooled.head.weight is pooled.embed.weight
    with torch.no_grad():
        for p in pooled.parameters():
            p.fill_(7.0)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_a_packed_model_gives_the_same_plain_one(tied):
    model = tiny_model(tiny_config(H=8, K=4, tied=tied))
    wanted = pool_kv_heads(model, 2)
    pooled = pool_kv_heads(model.pack(), 2)
    assert all(module.weight is not None for module in pooled.modules() if hasattr(module, "packed"))
    for (name, a), b in zip(wanted.named_parameters(), pooled.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("k", [9, 3, 1])
def test_the_cache_shrinks_as_the_formula_says(k):
    model = tiny_model(tiny_config(H=9, K=9))
    config = pool_kv_heads(model, k).config
    assert StaticCache(config, max_length=10).nbytes * 9 == StaticCache(model.config, max_length=10).nbytes * k


@pytest.mark.parametrize("k", [2, 0, -1, 4, 6, 9])
def test_pooling_refuses_what_does_not_divide(k):
    with pytest.raises(ConfigError, match=r"3 KV heads .* choose one of 1, 3"):
        pool_kv_heads(tiny_model(tiny_config(H=9, K=3)), k)


@pytest.mark.parametrize("k", [1, 2, 5, 6, 18])
def test_repeating_refuses_what_does_not_divide(k):
    with pytest.raises(ConfigError, match=r"choose one of 3, 9"):
        repeat_kv_heads(tiny_model(tiny_config(H=9, K=3)), k)
