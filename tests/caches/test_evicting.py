"""What only the evicting cache promises: each head's own best tokens within a budget, whoever says what best is."""

import math

import pytest
import torch

from cache_cases import feed, kv
from kvedu.analysis.eviction import evidence_bytes
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.caches.concat import ConcatCache
from kvedu.caches.evicting import EvictingCache
from kvedu.caches.scores import ALL, Held, h2o, key_norm, random, recent, snapkv, tova, watches
from kvedu.caches.window import WindowCache
from kvedu.errors import CacheError
from kvedu.model.loops import greedy_cached, greedy_uncached
from test_cache_laws import HEADS
from test_memory_math import held
from tiny import random_ids, tiny_config, tiny_model

POLICIES = {"h2o": h2o, "tova": tova, "snapkv": snapkv, "key norm": key_norm, "random": random, "recent": recent}
every_policy = pytest.mark.parametrize("score", POLICIES.values(), ids=POLICIES)


def attended(cache, seq, tokens, seed=0):
    """One step with queries that depend on the token, so that attention weights mean something."""
    outs = []
    with cache.step({seq: len(tokens)}) as view:
        for layer in range(cache.n_layers):
            view.append(layer, *kv(cache.config, layer, tokens, view.positions.tolist()))
            q_NHD = kv(tiny_config(H=cache.config.H, K=cache.config.H), layer + 50, tokens, view.positions.tolist())[0] * 2
            outs.append(view.attend(layer, q_NHD))
    return outs


@pytest.mark.parametrize("heads", HEADS)
@every_policy
def test_within_the_budget_nothing_is_lost(score, heads):
    """A budget as long as the text: greedy tokens are those without a cache."""
    model = tiny_model(tiny_config(*heads))
    prompt = random_ids(9)
    cache = EvictingCache(model.config, budget=28, score=score)
    assert greedy_cached(model, prompt, 20, cache) == greedy_uncached(model, prompt, 20)


def by_hand(score_of, budget, sinks, keep_last, steps, config, layer, head):
    """One KV head by lists: every weight computed again from the kept tokens. Returns the positions kept at the end."""
    G = config.H // config.K
    tokens = [t for step in steps for t in step]
    k = kv(config, layer, tokens, list(range(len(tokens))))[0][:, head]
    q = kv(tiny_config(H=config.H, K=config.H), layer + 50, tokens, list(range(len(tokens))))[0][:, head * G : head * G + G] * 2
    kept, rows, start = [], [], 0
    for step in steps:
        kept += range(start, start + len(step))
        for i in range(start, start + len(step)):
            seen = [j for j in kept if j <= i]
            weights = torch.softmax(q[i] @ k[seen].T / math.sqrt(config.D), -1).mean(0)
            rows.append(dict(zip(seen, weights.tolist())))
        start += len(step)
        if len(kept) > budget:
            middle = kept[sinks : len(kept) - keep_last]
            best = sorted(middle, key=lambda j: score_of(rows, j))[len(kept) - budget :]
            kept = sorted([*kept[:sinks], *best, *kept[len(kept) - keep_last :]])
    return kept


@pytest.mark.parametrize("steps", [[12, 1, 1, 1, 1, 1], [5, 5, 5, 2], [1] * 17], ids=str)
@pytest.mark.parametrize("watched", [ALL, 1, 4])
def test_each_head_keeps_what_a_list_would(watched, steps):
    """H2O's sum over all queries, TOVA's last one, a window of 4: weights through eviction after eviction, head by head."""
    config = tiny_config(H=6, K=2)
    score = watches(watched)(lambda h: h.attention_QSK.sum(0))
    cache, tokens = EvictingCache(config, budget=7, score=score, sinks=1, recent=2), random_ids(17)
    seq, cut = cache.add(), []
    for n in steps:
        cut.append(tokens[sum(map(len, cut)) : sum(map(len, cut)) + n])
        attended(cache, seq, cut[-1])
    chosen = []
    for layer in range(2):
        for head in range(2):

            def drawn(rows, j):
                return sum(row.get(j, 0.0) for row in (rows if watched == ALL else rows[-watched:]))

            wanted = by_hand(drawn, 7, 1, 2, cut, config, layer, head)
            assert cache.positions(seq, layer)[:, head].tolist() == wanted
            chosen.append(tuple(wanted))
            now = cache._held[seq, layer]
            k, v = kv(config, layer, [tokens[i] for i in wanted], wanted)
            assert torch.equal(now.k_SKD[:, head], k[:, head]) and torch.equal(now.v_SKD[:, head], v[:, head])
    assert len(set(chosen)) > 1, "heads choose for themselves"


def test_recent_with_sinks_holds_what_a_window_holds():
    """The baseline is StreamingLLM's choice of tokens."""
    config = tiny_config()
    evicting, window = EvictingCache(config, budget=7, score=recent, sinks=2), WindowCache(config, window=5, sinks=2)
    a, b, tokens = evicting.add(), window.add(), random_ids(30)
    for start, stop in [(0, 11), (11, 12), (12, 20), (20, 30)]:
        feed(evicting, {a: tokens[start:stop]})
        feed(window, {b: tokens[start:stop]})
        for layer in range(2):
            assert all(torch.equal(x, y) for x, y in zip(evicting._read(layer, a, 7), window._read(layer, b, 7)))
            assert (evicting.positions(a, layer) == torch.tensor(window._positions[b])[:, None]).all()


@pytest.mark.parametrize("score, kept", [(h2o, True), (tova, True), (snapkv, True), (recent, False), (key_norm, False)])
def test_a_token_that_is_looked_at_stays(score, kept):
    """A needle that every query looks at, with a large key: attention keeps it, recency and small norms do not."""
    config = tiny_config(L=1)
    cache = EvictingCache(config, budget=8, score=score)
    seq = cache.add()
    for start in range(0, 40, 4):
        with cache.step({seq: 4}) as view:
            k = torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(start)) * 0.1
            if start == 4:
                k[1] = 3.0  # position 5
            view.append(0, k, k)
            view.attend(0, torch.ones(4, 4, 8))
    assert (5 in cache.positions(seq, 0)[:, 0].tolist()) is kept


def test_tova_keeps_the_same_tokens_in_all_heads():
    for score, same in ((tova, True), (h2o, False)):
        cache = EvictingCache(tiny_config(H=4, K=4), budget=6, score=score)
        seq = cache.add()
        for n in (10, 5, 5):
            attended(cache, seq, random_ids(n, seed=n))
        assert (cache.positions(seq, 0) == cache.positions(seq, 0)[:, :1]).all().item() is same


@every_policy
def test_constant_memory_to_the_byte(score):
    """Keys, values, positions and weights: what is found in memory, what the cache says and what the formulas say."""
    config = tiny_config(H=6, K=3, L=2)
    cache = EvictingCache(config, budget=20, score=score, sinks=2, recent=4, dtype=torch.bfloat16)
    a, b = cache.add(), cache.add()
    for n in (7, 30, *[1] * 40):
        attended(cache, a, random_ids(n, seed=n))
        sizes = [min(cache.seen(seq), 20) for seq in (a, b)]
        queries = abs(cache.queries)
        wanted = sum(kv_cache_bytes(config, cache.seen(s), held=20) + evidence_bytes(config, n, queries) for s, n in zip((a, b), sizes))
        assert cache.nbytes == held(cache) == wanted
    assert cache.length(a) == 20 and cache.seen(a) == 77
    assert (cache.positions(a, 1)[:2] == torch.tensor([[0], [1]])).all() and (cache.positions(a, 1)[-4:, 0] == torch.arange(73, 77)).all()
    assert (cache.positions(a, 1).diff(dim=0) > 0).all()


def test_queries_in_blocks_are_noted_whole(monkeypatch):
    """Long prompts are attended block by block; outputs and choices do not show it."""
    outs = []
    for block in (3, 256):
        monkeypatch.setattr("kvedu.caches.evicting_view.BLOCK", block)
        for queries in (ALL, 1, 4):
            cache = EvictingCache(tiny_config(), budget=6, score=watches(queries)(lambda h: h.attention_QSK.sum(0)))
            seq = cache.add()
            out = attended(cache, seq, random_ids(20))
            outs.append((torch.stack(out), cache._held[seq, 1].weights_QSK, cache.positions(seq, 1)))
    for small, large in zip(outs[:3], outs[3:]):
        assert all(torch.allclose(a.float(), b.float(), atol=1e-5) for a, b in zip(small, large))


def test_a_tree_is_judged_when_its_path_is_known():
    cache = EvictingCache(tiny_config(), budget=6, score=recent)
    seq, chain = cache.add(), cache.add()
    feed(cache, {seq: random_ids(9)})
    feed(cache, {seq: [10, 11, 12, 13]}, parents={seq: [-1, 0, 0, 2]})
    assert cache.length(seq) == 10
    cache.keep(seq, [*range(6), 6, 8, 9])
    feed(cache, {chain: [*random_ids(9), 10, 12, 13]})
    assert cache.length(seq) == 6 and cache.seen(seq) == cache.seen(chain) == 12
    for layer in range(2):
        assert all(torch.equal(a, b) for a, b in zip(cache._held[seq, layer], cache._held[chain, layer]))


def test_what_was_evicted_does_not_come_back():
    cache = EvictingCache(tiny_config(), budget=6, score=h2o)
    seq = cache.add()
    attended(cache, seq, random_ids(6))
    cache.truncate(seq, 3)
    attended(cache, seq, random_ids(5))
    twin = cache.fork(seq)
    for s in (seq, twin):
        for call in (lambda: cache.truncate(s, 5), lambda: cache.keep(s, [0, 1, 2, 3, 5])):
            with pytest.raises(CacheError, match="has seen 8 tokens and evicted some"):
                call()
    cache.truncate(seq, 0)
    feed(cache, {seq: [1, 2, 3]})
    cache.truncate(seq, 2)
    assert cache.positions(seq, 0)[:, 0].tolist() == [0, 1] and cache.length(twin) == 6


@every_policy
def test_a_failing_step_evicts_nothing(score):
    """Keys, values, positions and weights are as before, and so is what comes after."""
    cache = EvictingCache(tiny_config(), budget=6, score=score)
    seq = cache.add()
    attended(cache, seq, random_ids(9))
    before, positions = [[x.clone() for x in cache._held[seq, layer]] for layer in range(2)], list(cache._positions[seq])
    with pytest.raises(RuntimeError), cache.step({seq: 3}) as view:
        view.append(0, *kv(cache.config, 0, [1, 2, 3], [9, 10, 11]))
        view.attend(0, torch.ones(3, 4, 8))
        raise RuntimeError
    assert cache._positions[seq] == positions
    for layer in range(2):
        assert all(torch.equal(a, b) for a, b in zip(before[layer], cache._held[seq, layer], strict=True))


def test_attention_over_evicted_text_is_attention_over_what_is_left():
    """A neighbor in the step makes no difference, and one KV head's tokens are not read by another."""
    config = tiny_config(L=1)
    cache, judge = EvictingCache(config, budget=5, score=h2o), ConcatCache(config)
    seq, mate, tokens = cache.add(), cache.add(), random_ids(12)
    attended(cache, seq, tokens)
    kept = cache.positions(seq, 0)
    q_NHD = torch.linspace(-1, 1, 64).view(2, 4, 8)
    with cache.step({mate: 1, seq: 1}) as view:
        view.append(0, *kv(config, 0, [8, 9], [0, 12]))
        got = view.attend(0, q_NHD)[1]
    for head in range(2):
        alone = judge.add()
        where = kept[:, head].tolist()
        k, v = (torch.cat((x, y)) for x, y in zip(kv(config, 0, [tokens[i] for i in where], where), kv(config, 0, [9], [12])))
        with judge.step({alone: 6}) as view:
            view.append(0, k, v)
            wanted = view.attend(0, q_NHD[1:].expand(6, 4, 8))[-1]
        torch.testing.assert_close(got[2 * head : 2 * head + 2], wanted[2 * head : 2 * head + 2], rtol=1e-4, atol=1e-5)


def needs_attention(held: Held) -> torch.Tensor:
    return held.attention_QSK.sum(0)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"budget": 4, "sinks": 4}, "cannot hold 4 sinks and the last 1; give at least 5"),
        ({"recent": 0}, "at least 1; got 0 and 0"),
        ({"sinks": -1}, "at least 1; got -1 and 1"),
        ({"score": needs_attention}, "looks at attention, but the cache keeps none"),
        ({"score": lambda h: h.k_SKD}, r"for 3 tokens and 2 heads got \(3, 2, 8\)"),
    ],
)
def test_refused_at_construction(changes, message):
    """One clear error each, before a token has come."""
    with pytest.raises(CacheError, match=message):
        EvictingCache(tiny_config(), **({"budget": 8, "score": recent} | changes))
