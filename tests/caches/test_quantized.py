"""What only the quantized cache promises: an exact tail of a known length, bytes as counted, codes whatever the arrival."""

import pytest
import torch

from cache_cases import contents, feed, kv
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.kernels.codes import decode, encode
from kvedu.caches.formats import float8, integer
from kvedu.caches.quantized import QuantizedCache
from kvedu.errors import CacheError
from test_memory_math import held
from tiny import random_ids, tiny_config

FORMATS = {
    "int8": (integer(8, 8), integer(8, 4, symmetric=True)),
    "int4 per channel": (integer(4, 4, "tokens"), integer(4, 8)),
    "int2, fp32 scales": (integer(2, 4, "tokens", symmetric=True), integer(2, 2, scale_dtype=torch.float32)),
    "float8": (float8("e4m3"), float8("e5m2", 8)),
}


def parts(cache, seq):
    """Everything that a sequence's codes and tails are made of."""
    sides = [side for layer in range(cache.n_layers) for side in cache._sides[seq, layer]]
    return [t for side in sides for t in (*side.coded.tensors, side.tail)]


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("prompt", [3, 4, 5, 6])
def test_decoded_tokens_are_coded_like_a_prompts(prompt, group):
    """C017: residual 4; a prompt, then 10 single steps: the last 4 exact, the exact part never above residual + group - 1."""
    cache = QuantizedCache(tiny_config(), keys=integer(8, group, "tokens"), values=integer(2, 8), residual=4)
    tokens, seq = random_ids(prompt + 10), cache.add()
    for n in [prompt, *range(prompt + 1, prompt + 11)]:
        feed(cache, {seq: tokens[cache.length(seq) : n]})
        assert cache.length(seq) == n
        assert cache.coded_tokens(seq) == (max(0, n - 4) // group * group, max(0, n - 4))
        for layer in range(cache.n_layers):
            true = kv(cache.config, layer, tokens[:n], list(range(n)))
            for x, wanted, side, step in zip(contents(cache, seq, layer), true, cache._sides[seq, layer], (group, 1)):
                assert torch.equal(x[-4:], wanted[-4:])
                assert len(side.tail) == n or 4 <= len(side.tail) <= 4 + step - 1
                assert n == 4 or n - len(side.tail) == 0 or not torch.equal(x, wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_read_is_what_the_format_makes_of_it(name):
    """Coded tokens come back as ``decode(encode(x))`` of the true ones, group by group from the first token on."""
    keys, values = FORMATS[name]
    cache = QuantizedCache(tiny_config(), keys=keys, values=values, residual=3)
    tokens, seq = random_ids(13), cache.add()
    feed(cache, {seq: tokens[:6]})
    feed(cache, {seq: tokens[6:]})
    for layer in range(2):
        true = kv(cache.config, layer, tokens, list(range(13)))
        for got, x, f, n in zip(contents(cache, seq, layer), true, (keys, values), cache.coded_tokens(seq)):
            assert n == 10 // f.step * f.step
            assert torch.equal(got, torch.cat((decode(encode(x[:n], f), f, 8), x[n:])))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("residual", [0, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bytes_are_the_bytes_stored(name, residual, dtype):
    """Codes, scales, zero points and tails: what is found in memory, what the cache says and what the formula says."""
    keys, values = FORMATS[name]
    config = tiny_config(H=6, K=3, D=8, L=3)
    cache = QuantizedCache(config, keys=keys, values=values, residual=residual, dtype=dtype)
    a, b = cache.add(), cache.add()
    total = 0
    for n, m in ((3, 9), (1, 1), (30, 1)):
        feed(cache, {a: random_ids(n), b: random_ids(m)})
        total = sum(
            kv_cache_bytes(config, cache.length(s), 1, dtype.itemsize, keys=keys.sized, values=values.sized, residual=residual)
            for s in (a, b)
        )
        assert cache.nbytes == held(cache) == total
    cache.truncate(a, 28)  # inside the tail or at a whole group: nothing stays behind it
    assert cache.nbytes == held(cache) < total


def test_a_head_that_fills_no_byte():
    """C019: 5 elements of 4 bits take 3 bytes a vector; of 2 bits, 2."""
    config = tiny_config(D=6).with_kv_heads(1)
    for bits, group in ((4, 3), (2, 6)):
        format = integer(bits, group)
        cache = QuantizedCache(config, keys=format, values=format)
        feed(cache, {(seq := cache.add()): random_ids(7)})
        assert cache.nbytes == kv_cache_bytes(config, 7, keys=format.sized, values=format.sized)
        assert contents(cache, seq, 0)[0].shape == (7, 1, 6)


def test_kivi_is_per_channel_for_keys_and_per_token_for_values():
    cache = QuantizedCache.kivi(tiny_config(D=32))
    keys, values = cache.formats
    assert (keys.bits, keys.along, keys.group, keys.symmetric) == (2, "tokens", 32, False)
    assert (values.bits, values.along, values.group, values.symmetric) == (2, "head", 32, False)
    assert cache.residual == 128 and keys.sized.bits_per_element == values.sized.bits_per_element == 3.0
    seq = cache.add()
    feed(cache, {seq: random_ids(200)})
    assert cache.coded_tokens(seq) == (64, 72)
    side = cache._sides[seq, 0][0]
    assert side.coded.codes.shape == (2, 2, 32 * 32 * 2 // 8) and side.coded.scale.shape == (2, 2, 32)


def test_a_tree_is_coded_when_its_path_is_known():
    """Rejected nodes leave no trace: the codes are those of the accepted chain."""
    cache = QuantizedCache(tiny_config(), keys=integer(4, 2, "tokens"), values=integer(4, 8), residual=1)
    seq, chain = cache.add(), cache.add()
    feed(cache, {seq: [1, 2, 3, 4]})
    feed(cache, {seq: [10, 11, 12, 13]}, parents={seq: [-1, 0, 0, 2]})
    cache.keep(seq, [0, 1, 2, 3, 4, 6, 7])
    feed(cache, {chain: [1, 2, 3, 4, 10, 12, 13]})
    assert all(torch.equal(a, b) for a, b in zip(parts(cache, seq), parts(cache, chain), strict=True))


def test_rejected_drafts_leave_no_trace_once_the_tail_has_grown_again():
    """The declared exception and its end: coded early, but coded the same."""
    cache = QuantizedCache.kivi(tiny_config(), group=4, residual=4)
    seq, never = cache.add(), cache.add()
    tokens = random_ids(15)
    feed(cache, {seq: [*tokens[:10], 90, 91, 92]})
    cache.truncate(seq, 10)
    assert cache.coded_tokens(seq) == (8, 9), "4 of 13 stayed exact, so 9 were coded; 3 of the 4 are gone"
    feed(cache, {seq: tokens[10:]})
    feed(cache, {never: tokens})
    assert all(torch.equal(a, b) for a, b in zip(parts(cache, seq), parts(cache, never), strict=True))


def test_a_group_stays_or_goes_as_a_whole():
    """Refused with the reason, and nothing is changed; whole groups and single per-token codes may go."""
    cache = QuantizedCache(tiny_config(), keys=integer(4, 4, "tokens"), values=integer(4, 8), residual=1)
    seq = cache.add()
    feed(cache, {seq: random_ids(10)})
    before = parts(cache, seq)
    for call in (lambda: cache.truncate(seq, 6), lambda: cache.keep(seq, [0, 1, 2, 4, 5, 6, 7, 8, 9])):
        with pytest.raises(CacheError, match="groups of 4 that share a scale.*multiple of 4"):
            call()
        assert all(a is b for a, b in zip(parts(cache, seq), before, strict=True)) and cache.length(seq) == 10
    whole = contents(cache, seq, 0)
    cache.keep(seq, [4, 5, 6, 7, 9])
    assert all(torch.equal(a, b[[4, 5, 6, 7, 9]]) for a, b in zip(contents(cache, seq, 0), whole))
    cache.truncate(seq, 0)
    assert cache.nbytes == 0
    per_token = QuantizedCache(tiny_config(), keys=integer(4, 8), values=integer(4, 8))
    seq = per_token.add()
    feed(per_token, {seq: random_ids(10)})
    whole = contents(per_token, seq, 0)
    per_token.keep(seq, [0, 3, 9])
    assert all(torch.equal(a, b[[0, 3, 9]]) for a, b in zip(contents(per_token, seq, 0), whole))


def test_forks_share_until_they_grow_apart():
    cache = QuantizedCache.kivi(tiny_config(), group=4, residual=2)
    seq = cache.add()
    feed(cache, {seq: random_ids(9)})
    held_by_one = cache.nbytes
    twin = cache.fork(seq)
    assert cache.nbytes == held_by_one
    alone = [t.clone() for t in parts(cache, seq)]
    feed(cache, {twin: random_ids(6, seed=4)})
    assert all(torch.equal(a, b) for a, b in zip(alone, parts(cache, seq), strict=True))


def test_a_failing_step_changes_nothing():
    cache = QuantizedCache.kivi(tiny_config(), group=4, residual=2)
    seq = cache.add()
    feed(cache, {seq: random_ids(9)})
    before = [t.clone() for t in parts(cache, seq)]
    with pytest.raises(RuntimeError), cache.step({seq: 8}) as view:
        view.append(0, *kv(cache.config, 0, random_ids(8), list(range(8))))
        raise RuntimeError
    assert all(torch.equal(a, b) for a, b in zip(before, parts(cache, seq), strict=True))


def test_refused_at_construction():
    config = tiny_config(D=8)
    with pytest.raises(CacheError, match="groups of 3 do not divide a head of 8.*instance 2"):
        QuantizedCache(config, keys=integer(8, 8), values=integer(8, 3))
    with pytest.raises(CacheError, match="at least 0, not -1"):
        QuantizedCache(config, keys=integer(8, 8), values=integer(8, 8), residual=-1)


def test_attention_over_channels_that_do_not_vary_is_finite():
    """C016: keys with channels that are 0, constant, or hardly vary; the output is finite and close to the true one."""
    config = tiny_config(L=1)
    k_NKD = torch.randn(12, 2, 8, generator=torch.Generator().manual_seed(3))
    k_NKD[..., 0], k_NKD[..., 1], k_NKD[..., 2] = 0.0, 100.0, torch.linspace(0, 1e-6, 12)[:, None]
    v_NKD, q_NHD = kv(config, 0, random_ids(12), list(range(12)))[1], torch.linspace(-1, 1, 32).view(1, 4, 8)
    outs = []
    for keys in (integer(8, 4, "tokens"), integer(8, 4, "tokens", symmetric=True), float8("e4m3", 4, "tokens")):
        cache = QuantizedCache(config, keys=keys, values=integer(8, 8))
        seq = cache.add()
        with cache.step({seq: 12}) as view:
            view.append(0, k_NKD, v_NKD)
            exact = view.attend(0, q_NHD.expand(12, 4, 8))[-1]
        with cache.step({seq: 1}) as view:
            outs.append(view.attend(0, q_NHD)[0])
            view.append(0, k_NKD[:1], v_NKD[:1])
        assert outs[-1].isfinite().all()
        torch.testing.assert_close(outs[-1], exact, atol=0.2, rtol=0.05)
