"""The transformer against transformers: tiny checkpoints of every family and RoPE scaling, and caches under them."""

import pytest
import torch

from cache_cases import CACHES, KEEPING, PLAIN
from kvedu.caches.concat import ConcatCache
from kvedu.caches.none import NoCache
from kvedu.caches.static import StaticCache
from kvedu.errors import CacheError, RequestError
from kvedu.model.load import load
from kvedu.model.loops import greedy_cached, greedy_uncached
from rope_scalings import SCALINGS
from tiny import random_ids, tiny_config, tiny_model
from tiny_checkpoints import MAKERS, make_llama


def full_logits(model, ids):
    """One pass without a cache: logits ``[N, V]``."""
    cache = NoCache(model.config, dtype=model.dtype)
    with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
        return model(torch.tensor(ids), view)


def hf_logits(hf, ids):
    with torch.inference_mode():
        return hf(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_equal_transformers(tmp_path, family, kv_heads, tied):
    """Must hold 1: full-pass logits within 1e-4, with and without GQA; Mistral's window and Qwen's biases and norms included."""
    folder, hf = MAKERS[family](tmp_path, num_key_value_heads=kv_heads, tie_word_embeddings=tied)
    ids = random_ids(24, V=96)
    torch.testing.assert_close(full_logits(load(folder), ids), hf_logits(hf, ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("length", [10, 40, 80])
def test_logits_equal_transformers_under_every_rope_scaling(tmp_path, kind, length):
    """Must hold 1, C057-C059: every scaling, below and past the lengths where dynamic (64) and longrope (16) switch."""
    parameters = {"rope_theta": 5e4, "rope_type": "default"} | SCALINGS[kind]
    folder, hf = make_llama(tmp_path, head_dim=8, rope_parameters=parameters, max_position_embeddings=64)
    ids = random_ids(length, V=96)
    torch.testing.assert_close(full_logits(load(folder), ids), hf_logits(hf, ids), rtol=0, atol=1e-4)


def test_theta_reaches_position_2000(tmp_path):
    """C058: a wrong theta is invisible on short prompts; logits at position 2000 equal transformers'."""
    folder, hf = make_llama(tmp_path, rope_parameters={"rope_theta": 5e5, "rope_type": "default"}, max_position_embeddings=4096)
    ids = random_ids(2001, V=96)
    torch.testing.assert_close(full_logits(load(folder), ids)[-1], hf_logits(hf, ids)[-1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_cached_equals_uncached_under_every_rope(tmp_path, name, kind, kv_heads):
    """Must hold 2: token for token in fp32, for MHA, GQA and MQA; dynamic and longrope up to their switch."""
    parameters = {"rope_theta": 1e4, "rope_type": "default"} | SCALINGS[kind]
    folder, _ = make_llama(
        tmp_path, head_dim=8, rope_parameters=parameters, max_position_embeddings=64, num_key_value_heads=kv_heads
    )
    model = load(folder)
    switch = model.config.rope.switch_length
    n_new = 30 if switch is None else switch - 6 + 1  # the last token is sampled, not fed
    prompt = random_ids(6, V=96)
    assert greedy_cached(model, prompt, n_new, CACHES[name](model.config)) == greedy_uncached(model, prompt, n_new)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_the_rope_switch_is_refused_not_crossed(tmp_path, kind):
    """DESIGN 4: past the switch cached keys were rotated otherwise; the cache says so and keeps what it had."""
    folder, _ = make_llama(
        tmp_path, head_dim=8, max_position_embeddings=64, rope_parameters={"rope_theta": 1e4} | SCALINGS[kind]
    )
    model, switch = load(folder), 64 if kind == "dynamic" else 16
    cache = StaticCache(model.config, max_length=100)
    seq = cache.add()
    ids = random_ids(90, V=96)
    with torch.inference_mode(), cache.step({seq: switch}) as view:
        model(torch.tensor(ids[:switch]), view)
    with pytest.raises(CacheError, match=f"past {switch} the {kind} RoPE"), cache.step({seq: 1}):
        raise AssertionError("must not begin")
    assert cache.length(seq) == switch
    cache.truncate(seq, 0)
    with torch.inference_mode(), cache.step({seq: 70}) as view:  # whole in one step: one set of frequencies
        logits = model(torch.tensor(ids[:70]), view)
    torch.testing.assert_close(logits, full_logits(model, ids[:70]), rtol=0, atol=1e-4)
    if kind == "longrope":  # long factors stay long
        with torch.inference_mode(), cache.step({seq: 1}) as view:
            logits = model(torch.tensor(ids[70:71]), view)
        torch.testing.assert_close(logits[-1], full_logits(model, ids[:71])[-1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_every_path_gives_the_same_logits(window, chunk):
    """C075, C002: prefill whole, in chunks, one by one, in ragged company: the logits of a full pass each time."""
    model = tiny_model(tiny_config(sliding_window=window))
    ids = random_ids(25)
    wanted = full_logits(model, ids)
    for make in (ConcatCache, lambda config: StaticCache(config, max_sequences=2, max_length=32)):
        cache = make(model.config)
        mate, seq = cache.add(), cache.add()
        got = []
        for start in range(0, 25, chunk):
            piece = ids[start : start + chunk]
            with torch.inference_mode(), cache.step({mate: 1, seq: len(piece)}) as view:
                got.append(model(torch.tensor([5, *piece]), view)[1:])
        torch.testing.assert_close(torch.cat(got), wanted, rtol=0, atol=1e-4)


def test_a_token_tree_equals_its_paths():
    """Each node of a tree sees its ancestors only: its logits are those of the path to it, run alone."""
    prompt, tree, parents = random_ids(5), [10, 11, 12, 13, 14], [-1, 0, 0, 1, -1]
    for name in KEEPING:
        cache = CACHES[name](tiny_config())
        model = tiny_model(cache.config)
        seq = cache.add()
        with torch.inference_mode():
            with cache.step({seq: 5}) as view:
                model(torch.tensor(prompt), view)
            with cache.step({seq: 5}, parents={seq: parents}) as view:
                logits = model(torch.tensor(tree), view)
        for node in range(5):
            path, at = [], node
            while at >= 0:
                path.insert(0, tree[at])
                at = parents[at]
            torch.testing.assert_close(logits[node], full_logits(model, prompt + path)[-1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 1e-4), (torch.bfloat16, 0.25)])
@pytest.mark.parametrize("tied", [False, True])
def test_the_packed_model_is_the_same_model(dtype, atol, tied):
    """The fast CPU path: same class, same logits, and unpack brings the very weights back."""
    from kvedu.kernels.packed_linear import packing_pays

    if not packing_pays(dtype):
        pytest.skip("no packed linear for this dtype on this CPU (no GPU needed)")
    model = tiny_model(tiny_config(qkv_bias=True, tied=tied), scale=0.2).to(dtype)
    if tied:
        model.tie()
    before = {name: p.clone() for name, p in model.named_parameters()}
    ids = random_ids(12)
    wanted = full_logits(model, ids)
    got = full_logits(model.pack(), ids)
    torch.testing.assert_close(got, wanted, rtol=0, atol=atol * wanted.abs().max().item())
    model.unpack()
    after = dict(model.named_parameters())
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    assert (model.head.weight is model.embed.weight) == tied


def test_gradients_pass_through_the_step():
    """Training uses the same forward pass: every parameter gets a gradient through NoCache."""
    model = tiny_model()
    cache = NoCache(model.config)
    with cache.step({cache.add(): 6, cache.add(): 4}) as view:
        loss = model(torch.tensor(random_ids(10)), view).logsumexp(-1).sum()
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_a_step_with_the_wrong_number_of_ids_is_refused():
    model = tiny_model()
    cache = NoCache(model.config)
    with pytest.raises(RequestError, match="laid out for 3 tokens, got 2 ids"), cache.step({cache.add(): 3}) as view:
        model(torch.tensor([1, 2]), view)
