"""What only the evicting cache promises: each head's own best tokens within a budget, whoever says what best is."""

import math

import pytest
import torch

from cache_cases import feed, kv
from kvedu.analysis.eviction import evidence_bytes, pyramid_budgets
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.shape import AttentionShape
from kvedu.caches.concat import ConcatCache
from kvedu.caches.evicting import EvictingCache
from kvedu.caches.scores import ALL, Held, expected_attention, h2o, key_norm, random, recent, snapkv, tova, watches
from kvedu.caches.window import WindowCache
from kvedu.caches.formats import float8, integer, rotated, with_apart
from kvedu.errors import CacheError, KveduError
from kvedu.kernels.codes import decode, encode
from kvedu.kernels.rope import rotate_reference
from kvedu.model.loops import greedy_cached, greedy_uncached
from kvedu.rope_config import RopeConfig
from test_cache_laws import HEADS
from test_memory_math import held
from tiny import random_ids, tiny_config, tiny_model

expected = expected_attention(tiny_config().rope, future=64)
POLICIES = {
    "h2o": h2o, "tova": tova, "snapkv": snapkv, "key norm": key_norm, "random": random, "recent": recent, "expected": expected,
}  # fmt: skip
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
            now = cache.held(seq, layer)
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
        moments = cache.wants_moments
        wanted = sum(
            kv_cache_bytes(config, cache.seen(s), held=20) + evidence_bytes(config, n, queries, moments=moments)
            for s, n in zip((a, b), sizes)
        )
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
            outs.append((torch.stack(out), cache.held(seq, 1).weights_QSK, cache.positions(seq, 1)))
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
        assert all(torch.equal(a, b) for a, b in zip(cache.held(seq, layer)[:4], cache.held(chain, layer)[:4]))


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
    before, positions = [[x.clone() for x in cache.held(seq, layer)[:4]] for layer in range(2)], list(cache._positions[seq])
    with pytest.raises(RuntimeError), cache.step({seq: 3}) as view:
        view.append(0, *kv(cache.config, 0, [1, 2, 3], [9, 10, 11]))
        view.attend(0, torch.ones(3, 4, 8))
        raise RuntimeError
    assert cache._positions[seq] == positions
    for layer in range(2):
        assert all(torch.equal(a, b) for a, b in zip(before[layer], cache.held(seq, layer)[:4], strict=True))


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


def asks_for_queries(held: Held) -> torch.Tensor:
    return held.queries.mean_KGD.sum() + held.positions_SK


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"score": asks_for_queries}, "asks what queries are like, but the cache keeps no sums.*@wants_moments"),
        ({"budget": [8, 4], "sinks": 4}, "a budget of layer 1 of 4 tokens cannot hold 4 sinks and the last 1; give at least 5"),
        ({"budget": [8, [8, 2]], "sinks": 2}, "a budget of layer 1 of 2 tokens cannot hold 2 sinks"),
        ({"budget": [8, 8, 8]}, "3 budgets for 2 layers"),
        ({"budget": [8, [8, 8, 8]]}, "3 budgets for the 2 KV heads of layer 1"),
        ({"keys": integer(4, 4, "tokens")}, "a group of 4 tokens shares a scale, and eviction takes single tokens out of it"),
        ({"values": with_apart(integer(4, 4), 1)}, "channels set apart are not kept"),
        ({"values": integer(4, 3)}, "groups of 3 do not divide a head of 8"),
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


@pytest.mark.parametrize("score", [h2o, recent, snapkv], ids=["h2o", "recent", "snapkv"])
def test_budgets_of_their_own_are_each_a_cache_of_its_own(score):
    """Per layer and head: each head keeps what it would keep where all heads had its budget; a layer attends over just these."""
    config, budgets = tiny_config(H=6, K=3, L=3), [[5, 9, 5], [7, 7, 7], [12, 6, 30]]
    mixed, sizes = EvictingCache(config, budget=budgets, score=score, sinks=1, recent=2), sorted({b for row in budgets for b in row})
    alone = {size: EvictingCache(config, budget=size, score=score, sinks=1, recent=2) for size in sizes}
    seqs, m, start = {size: cache.add() for size, cache in alone.items()}, mixed.add(), 0
    for n in (4, 10, 1, 1, 6, 1):
        tokens = random_ids(n, seed=start)
        got = attended(mixed, m, tokens)
        wanted = {size: attended(alone[size], seqs[size], tokens) for size in sizes}
        for layer, row in enumerate(budgets):
            for head, size in enumerate(row):
                group = slice(2 * head, 2 * head + 2)
                torch.testing.assert_close(got[layer][:, group], wanted[size][layer][:, group], rtol=1e-4, atol=1e-5)
                own = [p for p in mixed.positions(m, layer)[:, head].tolist() if p >= 0]
                assert own == alone[size].positions(seqs[size], layer)[:, head].tolist()
        start += n
    assert mixed.length(m) == 23 and mixed.seen(m) == 23 and mixed.budget == 30
    assert [[part.budget for part in mixed.parts_in(layer)] for layer in range(3)] == [[5, 9], [7], [12, 6, 30]]


def test_bytes_of_budgets_of_their_own():
    """What is stored is what each head may hold: smaller budgets are smaller in memory, to the byte."""
    config, budgets = tiny_config(H=6, K=3, L=2), [[5, 9, 5], 12]
    cache = EvictingCache(config, budget=budgets, score=h2o, recent=2)
    seq = cache.add()
    for n in (20, 1, 1):
        attended(cache, seq, random_ids(n, seed=n))
    sizes = [5, 9, 5, 12, 12, 12]
    head = AttentionShape(n_layers=1, n_heads=2, n_kv_heads=1, head_dim=8)
    wanted = sum(kv_cache_bytes(head, size, bytes_per_element=4) + evidence_bytes(head, size, 1) for size in sizes)
    assert cache.nbytes == held(cache) == wanted
    assert cache.length(seq) == 12


def test_a_life_with_budgets_of_their_own():
    """Trees, forks, failures and cuts where layers hold different numbers of tokens."""
    config = tiny_config(L=2)
    cache = EvictingCache(config, budget=[4, [9, 6]], score=recent, sinks=1, recent=2)
    seq, chain = cache.add(), cache.add()
    feed(cache, {seq: random_ids(8)})
    with pytest.raises(CacheError, match="evicted some"):
        cache.truncate(seq, 6)
    feed(cache, {seq: [10, 11, 12, 13]}, parents={seq: [-1, 0, 0, 2]})
    before = [cache.positions(seq, layer).clone() for layer in range(2)]
    with pytest.raises(RuntimeError), cache.step({seq: 2}) as view:
        view.append(0, *kv(config, 0, [1, 2], [11, 12]))
        raise RuntimeError
    assert all(torch.equal(a, cache.positions(seq, layer)) for layer, a in enumerate(before))
    n = cache.length(seq)
    cache.keep(seq, [*range(n - 4), n - 4, n - 2, n - 1])
    feed(cache, {chain: [*random_ids(8), 10, 12, 13]})
    twin = cache.fork(seq)
    feed(cache, {twin: [3], chain: [3], seq: [5]})
    for layer in range(2):
        assert torch.equal(cache.positions(twin, layer), cache.positions(chain, layer))
        assert all(torch.equal(a, b) for a, b in zip(cache._read(layer, twin, 9), cache._read(layer, chain, 9)))
    assert cache.positions(seq, 1).tolist()[0] == [0, -1] and cache.positions(seq, 0).tolist() == [[0, 0], [9, 9], [10, 10], [11, 11]]
    cache.truncate(seq, 0)
    assert cache.length(seq) == 0 and len(cache.positions(seq, 1)) == 0
    for s in (twin, chain, seq):
        cache.free(s)
    assert cache.nbytes == 0


def test_pyramid():
    """Equal steps down, the sum to the token, the last layer at mean / beta; a cache takes them as they are."""
    for L, mean, beta in [(30, 96, 20), (5, 100, 2), (2, 7, 20), (4, 5, 1)]:
        budgets = pyramid_budgets(L, mean, beta)
        assert sum(budgets) == L * mean and list(budgets) == sorted(budgets, reverse=True)
        last = max(mean / beta, 1)
        assert all(abs(size - (2 * mean - last - 2 * (mean - last) * i / (L - 1))) <= 1 for i, size in enumerate(budgets))
    assert pyramid_budgets(1, 7) == (7,) and pyramid_budgets(30, 96)[-1] == 5 and pyramid_budgets(30, 64, least=12)[-1] == 12
    for wrong in ((0, 5), (4, 0), (4, 5, 0.5)):
        with pytest.raises(KveduError, match="a pyramid has layers"):
            pyramid_budgets(*wrong)
    cache = EvictingCache(tiny_config(L=3), budget=pyramid_budgets(3, 8, 4), score=h2o)
    seq = cache.add()
    attended(cache, seq, random_ids(30))
    assert [len(cache.positions(seq, layer)) for layer in range(3)] == [14, 8, 2]


FORMATS = {
    "int8": (integer(8, 4), integer(8, 8)), "int4 keys": (integer(4, 8, symmetric=True), None),
    "fp8 and rotated int4": (float8(), rotated(integer(4, 4))),
}  # fmt: skip


@pytest.mark.parametrize("formats", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("budget", [6, [5, [6, 9]]], ids=str)
def test_what_is_kept_can_be_codes(formats, budget):
    """Every token that is held is the rounding of what came, once and not again, and takes the bytes of its format."""
    config = tiny_config(H=4, K=2)
    keys, values = formats
    cache = EvictingCache(config, budget=budget, score=h2o, recent=2, keys=keys, values=values)
    seq, tokens = cache.add(), random_ids(26)
    for start, stop in [(0, 4), (4, 15), *((i, i + 1) for i in range(15, 26))]:
        attended(cache, seq, tokens[start:stop])
    for layer in range(2):
        positions_SK = cache.positions(seq, layer)
        for got, side, which in zip(cache._read(layer, seq, 99), formats, (0, 1)):
            for head in range(2):
                where = [p for p in positions_SK[:, head].tolist() if p >= 0]
                came = kv(config, layer, [tokens[p] for p in where], where)[which]
                wanted = came if side is None else decode(encode(came, side), side, 8)
                assert torch.equal(got[len(got) - len(where) :, head], wanted[:, head])
    head = AttentionShape(n_layers=1, n_heads=2, n_kv_heads=1, head_dim=8)
    sizes = [6] * 4 if budget == 6 else [5, 5, 6, 9]
    sized = {name: side and side.sized for name, side in zip(("keys", "values"), formats)}
    wanted = sum(kv_cache_bytes(head, n, bytes_per_element=4, **sized) + evidence_bytes(head, n, 1) for n in sizes)
    assert cache.nbytes == held(cache) == wanted


ROPES = {
    "default": {}, "part of the head": {"dim": 4}, "linear": {"kind": "linear", "factor": 4.0},
    "yarn": {"kind": "yarn", "factor": 4.0, "original_max_positions": 16},
}  # fmt: skip


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
def test_expected_attention_is_the_mean_over_queries_to_come(rope):
    """Against the paper's formula in plain steps: each place's rotation as a matrix, their mean, mean and covariance through it.

    C059, C060: YaRN's magnitude and a head that is turned in part are undone from what the queries were.
    """
    config = tiny_config(H=4, K=2, L=1, rope=RopeConfig(**({"dim": 8, "max_positions": 64} | rope)))
    generator = torch.Generator().manual_seed(3)
    plain_NHD = torch.randn(20, 4, 8, generator=generator) + 0.5
    cache, future = EvictingCache(config, budget=50, score=expected_attention(config.rope, future=5, epsilon=0.02)), 5
    seq, start = cache.add(), 0
    for n in (12, 1, 7):
        with cache.step({seq: n}) as view:
            q, k = view.rotate(plain_NHD[start : start + n], torch.randn(n, 2, 8, generator=generator))
            view.append(0, k, torch.randn(n, 2, 8, generator=generator))
            view.attend(0, q)
        start += n
    now = cache._kept[seq, cache.parts[0]]
    torch.testing.assert_close(now.moments.mean_KGD.flatten(0, 1), plain_NHD.mean(0), rtol=1e-4, atol=1e-5)
    eye_DD = torch.eye(8)[:, None]
    turn_DD = torch.stack([rotate_reference(eye_DD, torch.full((8,), p), config.rope)[:, 0].T for p in range(20, 20 + future)]).mean(0)
    shown, got_SK = cache.held(seq, 0), cache.score(cache.held(seq, 0))
    for head in range(2):
        k_SD, drawn = shown.k_SKD[:, head], []
        for h in (2 * head, 2 * head + 1):
            mean, cov = turn_DD @ plain_NHD[:, h].mean(0), turn_DD @ torch.cov(plain_NHD[:, h].T, correction=0) @ turn_DD.T
            drawn.append(torch.softmax(k_SD @ mean / 8**0.5 + ((k_SD @ cov) * k_SD).sum(-1) / 16, 0))
        wanted_S = (torch.stack(drawn).mean(0) + 0.02) * shown.v_SKD[:, head].norm(dim=-1)
        torch.testing.assert_close(got_SK[:, head], wanted_S, rtol=1e-3, atol=1e-5)
    with pytest.raises(CacheError, match="0 queries to come"):
        expected_attention(config.rope, future=0)
