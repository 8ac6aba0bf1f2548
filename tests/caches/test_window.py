"""What only window caches promise: exactly W keys, constant memory, sinks that stay, and places inside the cache."""

import math

import pytest
import torch

from cache_cases import contents, feed, kv
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.caches.concat import ConcatCache
from kvedu.caches.streaming import StreamingCache
from kvedu.caches.window import WindowCache
from kvedu.errors import CacheError
from kvedu.kernels.rope import rotate_reference
from kvedu.model.loops import greedy_cached, greedy_uncached
from kvedu.rope_config import RopeConfig
from test_cache_laws import HEADS
from test_memory_math import held
from tiny import random_ids, tiny_config, tiny_model

SPLITS = {"prompt": [10], "chunks of 3": [3, 3, 3, 1], "one by one": [1] * 10, "prompt, then one by one": [6, 1, 1, 1, 1]}


def keys_seen(cache, splits, layer=0) -> list[set[int]]:
    """For each token the set of tokens that it draws on: values are one-hot, and every weight is above 0."""
    seq, seen, n = cache.add(), [], sum(splits)
    v = torch.eye(n).view(n, 1, n)
    for count in splits:
        with cache.step({seq: count}) as view:
            new = v[len(seen) : len(seen) + count]
            view.append(layer, torch.zeros(count, 1, n), new)
            out_NHD = view.attend(layer, torch.zeros(count, 1, n))
            seen += [set(row.nonzero()[:, 0].tolist()) for row in out_NHD[:, 0]]
    return seen


@pytest.mark.parametrize("splits", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("W", [1, 4, 10, 20])
@pytest.mark.parametrize("sinks", [0, 1, 3])
@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_exactly_the_window_is_seen(kind, sinks, W, splits):
    """C075: token i sees i - W + 1 .. i and the sinks, in a prompt, in chunks and alone; W >= S is plain causal."""
    config = tiny_config(H=1, K=1, D=10, L=1, rope=RopeConfig(dim=10, max_positions=256))
    seen = keys_seen(kind(config, window=W, sinks=sinks), splits)
    assert seen == [{j for j in range(i + 1) if j > i - W or j < sinks} for i in range(10)]
    if sinks == 0 and W == 4:
        assert [len(s) for s in seen] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]


@pytest.mark.parametrize("splits", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("W", [0, None, 1, 4, 10])
def test_a_models_own_window_in_every_cache(splits, W):
    """C075: the same counts where the window is the model's; 0 and None mean full causal attention."""
    config = tiny_config(H=1, K=1, D=10, L=1, rope=RopeConfig(dim=10, max_positions=256), sliding_window=W or None)
    full = [{*range(max(0, i - (W or 10) + 1), i + 1)} for i in range(10)]
    assert keys_seen(ConcatCache(config), splits) == full
    narrower = keys_seen(WindowCache(config, window=6, sinks=1), splits)
    own = W or 10
    assert narrower == [{j for j in range(i + 1) if j > i - min(own, 6) or (j < 1 and own >= 6)} for i in range(10)]


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_a_model_with_a_window_needs_no_more_than_the_window(kind, heads):
    """Greedy tokens of a windowed model, whole text computed each time = with a cache that holds W tokens."""
    model = tiny_model(tiny_config(*heads, sliding_window=5))
    prompt = random_ids(9)
    wanted = greedy_uncached(model, prompt, 20)
    assert wanted != greedy_uncached(tiny_model(tiny_config(*heads)), prompt, 20), "the window must matter"
    cache = kind(model.config, window=5, sinks=0)
    assert greedy_cached(model, prompt, 20, cache) == wanted


def one_by_one(config, window, sinks, q_NHD, k_NKD, v_NKD):
    """StreamingLLM written down: a list of held tokens; keys rotated by their index in it, the query by the last."""
    held_, outs = [], []
    for i in range(len(q_NHD)):
        held_ = [j for j in held_ if j < sinks or j > i - window] + [i]
        place = torch.arange(len(held_))
        k = rotate_reference(k_NKD[held_], place, config.rope).repeat_interleave(config.H // config.K, 1)
        q = rotate_reference(q_NHD[i : i + 1], place[-1:], config.rope)[0]
        weights = torch.softmax(torch.einsum("hd,shd->hs", q, k) / math.sqrt(config.D), -1)
        outs.append(torch.einsum("hs,shd->hd", weights, v_NKD[held_].repeat_interleave(config.H // config.K, 1)))
    return torch.stack(outs)


@pytest.mark.parametrize("splits", [[40], [13, 1, 1, 20, 5], [1] * 40])
@pytest.mark.parametrize("window, sinks", [(5, 0), (5, 4), (1, 2), (12, 1), (60, 4)])
def test_places_inside_the_cache(window, sinks, splits):
    """However the text is cut into steps, each token attends as if all had come one by one and been renumbered."""
    config = tiny_config(H=6, K=2, L=1)
    generator = torch.Generator().manual_seed(0)
    q_NHD, k_NKD, v_NKD = (torch.randn(40, heads, 8, generator=generator) for heads in (6, 2, 2))
    cache, outs, start = StreamingCache(config, window=window, sinks=sinks), [], 0
    seq = cache.add()
    for count in splits:
        with cache.step({seq: count}) as view:
            new = slice(start, start := start + count)
            q, k = view.rotate(q_NHD[new], k_NKD[new])
            view.append(0, k, v_NKD[new])
            outs.append(view.attend(0, q))
    wanted = one_by_one(config, window, sinks, q_NHD, k_NKD, v_NKD)
    torch.testing.assert_close(torch.cat(outs), wanted, rtol=1e-4, atol=1e-5)


def test_places_matter_beyond_the_window_only():
    """A short text: the same with keys rotated in the text. A long one: a sink is near in the cache, far in the text."""
    config, outs = tiny_config(L=1), {}
    for kind in (WindowCache, StreamingCache):
        cache = kind(config, window=6, sinks=2)
        seq, got = cache.add(), []
        for i in range(16):
            with cache.step({seq: 1}) as view:
                k, v = kv(config, 0, [i], [0])
                q, k = view.rotate(kv(tiny_config(K=4), 0, [50 + i], [0])[0], k)
                view.append(0, k, v)
                got.append(view.attend(0, q))
        outs[kind] = torch.cat(got)
    same = [torch.allclose(a, b, atol=1e-5) for a, b in zip(*outs.values())]
    assert same == [True] * 8 + [False] * 8


@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_a_stream_of_4000_tokens_in_constant_memory(kind):
    """What is held is what the formula says; after 100 tokens neither bytes nor the list of positions grow."""
    config = tiny_config(L=1)
    cache = kind(config, window=28, sinks=4, dtype=torch.float32)
    seq, sizes = cache.add(), set()
    tokens = random_ids(4000)
    for start in [*range(0, 3900, 50), *range(3900, 4000)]:
        count = 50 if start < 3900 else 1
        feed(cache, {seq: tokens[start : start + count]})
        n = start + count
        assert cache.nbytes == held(cache) == kv_cache_bytes(config, n, bytes_per_element=4, held=32)
        sizes.add((cache.nbytes, cache.length(seq)))
    assert sizes == {(kv_cache_bytes(config, 32, bytes_per_element=4), 32)} and cache.seen(seq) == 4000
    stay = [0, 1, 2, 3, *range(3972, 4000)]
    wanted = kv(config, 0, [tokens[i] for i in stay], stay)
    assert all(torch.equal(a, b) for a, b in zip(contents(cache, seq, 0), wanted))


def test_angles_stay_exact_however_long_the_text():
    """A million tokens on, a query meets the same keys with the same weights as at the start: places are small."""
    config = tiny_config(L=1)
    outs = []
    for shift in (0, 1_000_000):
        cache = StreamingCache(config, window=8, sinks=2)
        seq = cache.add()
        feed(cache, {seq: random_ids(20)})
        if shift:
            cache._positions[seq] = [p if p < 2 else p + shift for p in cache._positions[seq]]
        with cache.step({seq: 3}) as view:
            q, k = view.rotate(torch.ones(3, 4, 8), torch.ones(3, 2, 8))
            view.append(0, k, k)
            outs.append(view.attend(0, q))
    assert torch.equal(*outs)


@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_decoding_writes_in_place(kind):
    """A ring: from the first token to the last the same storages, of the same size; a decoded token changes one place."""
    config = tiny_config(L=1)
    cache = kind(config, window=5, sinks=2)
    seq = cache.add()
    storages = [x.data_ptr() for x in cache._rings[seq, 0]]
    feed(cache, {seq: random_ids(9)})
    for n in range(9, 40):
        before = cache._rings[seq, 0].k_RKD.clone()
        feed(cache, {seq: [n]})
        changed = (cache._rings[seq, 0].k_RKD != before).flatten(1).any(1).nonzero()[:, 0].tolist()
        assert changed == [2 + (n - 2) % 5] and [x.data_ptr() for x in cache._rings[seq, 0]] == storages
        assert cache._tails == {} and cache._undo == {} and cache.nbytes == held(cache)


@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_a_decoded_token_that_fails_is_taken_back(kind):
    """What it was written over is there again, in every layer, also where it came no further than the first."""
    cache = kind(tiny_config(L=3), window=4, sinks=1)
    a, b = cache.add(), cache.add()
    feed(cache, {a: random_ids(11), b: random_ids(2)})
    before = [[x.clone() for x in contents(cache, seq, layer)] for seq in (a, b) for layer in range(3)]
    for layers in (1, 3):
        with pytest.raises(RuntimeError), cache.step({a: 1, b: 1}) as view:
            for layer in range(layers):
                view.append(layer, *kv(cache.config, layer, [5, 6], [11, 2]))
                got = view.gather(layer, a)
                assert got[2].tolist() == [0, 7, 8, 9, 10, 11], "what will go is there until the step ends"
                assert torch.equal(got[0][1], before[layer][0][1])
            raise RuntimeError
    after = [list(contents(cache, seq, layer)) for seq in (a, b) for layer in range(3)]
    assert all(torch.equal(x, y) for one, other in zip(before, after) for x, y in zip(one, other))


@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_a_tree_goes_on_when_its_path_is_known(kind):
    """Siblings have one position and cannot lie in one place: a step before keep() is refused, a cut to a chain is not."""
    cache = kind(tiny_config(), window=4, sinks=1)
    seq, chain = cache.add(), cache.add()
    feed(cache, {seq: [1, 2, 3, 4, 5, 6, 7]})
    feed(cache, {seq: [10, 11, 12]}, parents={seq: [-1, 0, 0]})
    with pytest.raises(CacheError, match="ends in a tree of 3 tokens; say with keep"):
        feed(cache, {seq: [9]})
    twin = cache.fork(seq)
    cache.truncate(twin, 7)  # without the second sibling
    feed(cache, {chain: [1, 2, 3, 4, 5, 6, 7, 10, 11]})
    for layer in range(2):
        assert all(torch.equal(a, b) for a, b in zip(contents(cache, twin, layer), contents(cache, chain, layer)))
    feed(cache, {twin: [9]})
    assert cache._positions[twin] == [0, 6, 7, 8, 9]


@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_a_tree_and_its_path(kind):
    """Nothing is let go before the path is known; then what is held is what the chain would have left."""
    cache = kind(tiny_config(), window=4, sinks=1)
    seq, chain = cache.add(), cache.add()
    feed(cache, {seq: [1, 2, 3, 4, 5, 6, 7]})
    feed(cache, {seq: [10, 11, 12, 13]}, parents={seq: [-1, 0, 0, 2]})
    cache.keep(seq, [*range(5), 5, 7, 8])
    feed(cache, {chain: [1, 2, 3, 4, 5, 6, 7, 10, 12, 13]})
    assert cache._positions[seq] == cache._positions[chain] == [0, 6, 7, 8, 9]
    for layer in range(2):
        assert all(torch.equal(a, b) for a, b in zip(contents(cache, seq, layer), contents(cache, chain, layer)))


@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_what_was_let_go_does_not_come_back(kind):
    """Cutting is exact while every token is there, and refused with the reason when the window would have a hole."""
    cache = kind(tiny_config(), window=4, sinks=1)
    seq = cache.add()
    feed(cache, {seq: random_ids(5)})
    cache.truncate(seq, 2)
    assert cache.seen(seq) == 2
    feed(cache, {seq: random_ids(6)})
    for call in (lambda: cache.truncate(seq, 4), lambda: cache.keep(seq, [0, 1, 2]), lambda: cache.keep(seq, [0])):
        with pytest.raises(CacheError, match="has seen 8 tokens and let some go.*window of 4 would"):
            call()
    with pytest.raises(CacheError, match="a gap inside it"):
        cache.keep(seq, [1, 2, 3, 4])
    assert cache.length(seq) == 5
    cache.truncate(seq, 0)
    feed(cache, {seq: [7, 8]})
    assert cache._positions[seq] == [0, 1]


@pytest.mark.parametrize("kind", [WindowCache, StreamingCache])
def test_a_failing_step_lets_nothing_go(kind):
    cache = kind(tiny_config(), window=4, sinks=1)
    seq = cache.add()
    feed(cache, {seq: random_ids(9)})
    before, positions = contents(cache, seq, 1), list(cache._positions[seq])
    with pytest.raises(RuntimeError), cache.step({seq: 3}) as view:
        view.append(0, *kv(cache.config, 0, [1, 2, 3], [9, 10, 11]))
        raise RuntimeError
    assert cache._positions[seq] == positions
    assert all(torch.equal(a, b) for a, b in zip(before, contents(cache, seq, 1)))


def test_refused_at_construction():
    config = tiny_config()
    for window in (0, -3):
        with pytest.raises(CacheError, match="1 or more, not"):
            WindowCache(config, window=window)
    with pytest.raises(CacheError, match="sinks counts.*not -1"):
        StreamingCache(config, window=4, sinks=-1)
    dynamic = tiny_config(rope=RopeConfig(dim=8, kind="dynamic", factor=2.0, max_positions=16))
    with pytest.raises(CacheError, match="4 sinks and a window of 13 are more than 16 positions"):
        StreamingCache(dynamic, window=13)
    cache = StreamingCache(dynamic, window=12)
    seq = cache.add()
    for start in range(0, 60, 10):  # far past the switch, which places never reach
        feed(cache, {seq: random_ids(10)})
    assert cache.seen(seq) == 60
