"""One law over every cache: what the contract promises, whatever the layout behind it."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_cases import CACHES, KEEPING, contents, feed, keeping_to, kv, random_kv
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.errors import CacheError
from kvedu.model.loops import greedy_cached, greedy_uncached
from tiny import random_ids, tiny_config, tiny_model

HEADS = [(4, 4), (4, 2), (6, 2), (8, 1), (9, 3)]
every_cache = pytest.mark.parametrize("name", CACHES)
keeping_cache = pytest.mark.parametrize("name", KEEPING)
every_token_cache = pytest.mark.parametrize("name", keeping_to("keeps every token"))


def assert_holds(cache, seq, tokens, positions=None):
    """The cache holds exactly these tokens of a sequence, in every layer."""
    positions = list(range(len(tokens))) if positions is None else positions
    assert cache.length(seq) == len(tokens)
    for layer in range(cache.n_layers):
        for got, wanted in zip(contents(cache, seq, layer), kv(cache.config, layer, tokens, positions)):
            assert torch.equal(got, wanted)


@every_cache
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("window", [None, 1, 4])
def test_attend_equals_reference_over_gather(name, heads, window):
    """C001, C002, C075: fast attention of a layout equals reference attention over what it gathers.

    Fresh prompts, chunks after a cached prefix, lone decode tokens of unequal sequences, and trees.
    """
    config = tiny_config(*heads, sliding_window=window)
    cache = CACHES[name](config)
    config = cache.config
    a, b, c = cache.add(), cache.add(), cache.add()
    steps = [({a: 5, b: 3}, None), ({b: 4, c: 7}, None), ({a: 1, b: 1, c: 1}, None), ({c: 1, a: 3}, None)]
    steps += [({a: 4, b: 2}, {a: [-1, 0, 0, 1]}), ({c: 1}, None), ({b: 1, c: 1}, None)]
    generator = torch.Generator().manual_seed(1)
    for counts, parents in steps:
        N = sum(counts.values())
        with cache.step(counts, parents) as view:
            for layer in range(cache.n_layers):
                view.append(layer, *random_kv(config, N, generator))
                q_NHD = torch.randn(N, config.H, config.D, generator=generator)
                torch.testing.assert_close(view.attend(layer, q_NHD), view.attend_reference(layer, q_NHD), rtol=1e-4, atol=1e-5)
        if parents:  # only a chain can be continued: keep the tree's path 0-1-3
            start = cache.length(a) - 4
            if cache.length(a):
                cache.keep(a, [*range(start), start, start + 1, start + 3])


@every_cache
@pytest.mark.parametrize("heads", HEADS)
def test_all_at_once_equals_one_after_the_other(name, heads):
    """``meet`` is ``rotate``, ``append`` and ``attend``: prompts, chunks, single tokens and a tree; the same outputs, the same contents."""
    outs = []
    for at_once in (False, True):
        cache, generator, seen = CACHES[name](tiny_config(*heads)), torch.Generator().manual_seed(3), []
        a, b = cache.add(), cache.add()
        for counts, parents in (({a: 5, b: 2}, None), ({a: 1, b: 1}, None), ({b: 6, a: 1}, None), ({a: 4, b: 1}, {a: [-1, 0, 0, 1]})):
            n, K, H = sum(counts.values()), cache.config.K, cache.config.H
            with cache.step(counts, parents) as view:
                for layer in range(cache.n_layers):
                    k_NKD, v_NKD = random_kv(cache.config, n, generator)
                    q_NHD = torch.randn(n, H, cache.config.D, generator=generator)
                    if at_once:
                        seen.append(view.meet(layer, q_NHD, k_NKD, v_NKD))
                    else:
                        q_NHD, k_NKD = view.rotate(q_NHD, k_NKD)
                        view.append(layer, k_NKD, v_NKD)
                        seen.append(view.attend(layer, q_NHD))
            seen += [x for seq in (a, b) for layer in range(cache.n_layers) for x in contents(cache, seq, layer)]
        outs.append(seen)
    for apart, together in zip(*outs):
        torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)


@every_cache
def test_the_strides_of_what_comes_do_not_matter(name):
    """Queries, keys and values that lie head by head give what packed ones give, one sequence at a time and two."""
    config = tiny_config()
    outs = []
    for apart in (False, True):
        cache, generator, seen = CACHES[name](config), torch.Generator().manual_seed(2), []

        def laid(x_NHD):
            return x_NHD.transpose(0, 1).contiguous().transpose(0, 1) if apart else x_NHD

        a, b = cache.add(), cache.add()
        for counts in ({a: 3}, {a: 1, b: 4}, {a: 2, b: 1}):
            n = sum(counts.values())
            with cache.step(counts) as view:
                for layer in range(cache.n_layers):
                    view.append(layer, *map(laid, random_kv(cache.config, n, generator)))
                    q_NHD = torch.randn(n, cache.config.H, cache.config.D, generator=generator)
                    seen.append(view.attend(layer, laid(q_NHD)))
        outs.append(torch.cat(seen))
    torch.testing.assert_close(outs[1], outs[0], rtol=1e-4, atol=1e-5)


@keeping_cache
def test_bytes_equal_the_formula(name):
    """nbytes is the sum of the storages and what ``analysis.memory`` says of the tokens (or places) held."""
    cache = CACHES[name](tiny_config())
    a, b = cache.add(), cache.add()
    feed(cache, {a: random_ids(7), b: random_ids(2)})
    feed(cache, {a: random_ids(1, seed=2)})
    places = 384 if name.startswith(("static", "paged", "offloaded")) else 10  # preallocated, or just the tokens held
    assert cache.nbytes == kv_cache_bytes(cache.config, places, bytes_per_element=4)


@every_cache
def test_freeing_everything_gives_everything_back(name):
    cache = CACHES[name](tiny_config())
    empty = cache.nbytes
    for round_ in range(3):
        seqs = [cache.add() for _ in range(4)]
        feed(cache, {seq: random_ids(5 + seq % 3, seed=seq) for seq in seqs})
        seqs.append(cache.fork(seqs[1]))
        for seq in random.Random(round_).sample(seqs, len(seqs)):
            cache.free(seq)
        assert cache.sequences == () and cache.nbytes == empty
    assert len({cache.add() for _ in range(6)}) == 6


@keeping_cache
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_chunking_gives_the_same_state(name, data):
    tokens = random_ids(data.draw(st.integers(1, 24), label="length"))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(tokens) - 1))), label="cuts") | {0, len(tokens)})
    cache = CACHES[name](tiny_config())
    seq, mate = cache.add(), cache.add()
    for start, stop in zip(cuts, cuts[1:]):
        feed(cache, {seq: tokens[start:stop]} | ({mate: [3]} if start % 2 else {}))
    assert_holds(cache, seq, tokens)


@every_token_cache
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_chunking_gives_the_state_of_one_step(name, data):
    """C017: also where values are rounded, what is held does not depend on how the tokens arrived."""
    tokens = random_ids(data.draw(st.integers(1, 24), label="length"))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(tokens) - 1))), label="cuts") | {0, len(tokens)})
    cache = CACHES[name](tiny_config())
    whole, parts = cache.add(), cache.add()
    feed(cache, {whole: tokens})
    for start, stop in zip(cuts, cuts[1:]):
        feed(cache, {parts: tokens[start:stop]})
    room = {"rtol": 1e-4, "atol": 1e-5} if "same bits in any chunking" in cache.exceptions else {"rtol": 0, "atol": 0}
    for layer in range(cache.n_layers):
        for got, wanted in zip(contents(cache, parts, layer), contents(cache, whole, layer)):
            torch.testing.assert_close(got, wanted, **room)


@keeping_cache
@pytest.mark.parametrize("length", [0, 1, 4, 5])
def test_truncate_then_append_equals_never_having_appended(name, length):
    """C012: every layer forgets alike."""
    cache = CACHES[name](tiny_config(L=3))
    seq = cache.add()
    feed(cache, {seq: random_ids(6)})
    cache.truncate(seq, length)
    kept = random_ids(6)[:length]
    assert_holds(cache, seq, kept)
    feed(cache, {seq: [90, 91]})
    assert_holds(cache, seq, [*kept, 90, 91])


@keeping_cache
def test_a_tree_keeps_its_accepted_path(name):
    """After keep() of a path the sequence is what a chain of these tokens would have made."""
    cache = CACHES[name](tiny_config())
    seq = cache.add()
    feed(cache, {seq: [1, 2, 3]})
    feed(cache, {seq: [10, 11, 12, 13]}, parents={seq: [-1, 0, 0, 2]})
    cache.keep(seq, [0, 1, 2, 3, 5, 6])
    assert_holds(cache, seq, [1, 2, 3, 10, 12, 13])
    feed(cache, {seq: [14]})
    assert_holds(cache, seq, [1, 2, 3, 10, 12, 13, 14])


@keeping_cache
def test_forks_grow_apart(name):
    cache = CACHES[name](tiny_config())
    seq = cache.add()
    feed(cache, {seq: [1, 2, 3]})
    twin = cache.fork(seq)
    feed(cache, {seq: [4], twin: [5, 6]})
    assert_holds(cache, seq, [1, 2, 3, 4])
    assert_holds(cache, twin, [1, 2, 3, 5, 6])
    cache.free(seq)
    assert_holds(cache, twin, [1, 2, 3, 5, 6])


@keeping_cache
def test_a_failing_step_changes_nothing(name):
    """An exception, or a layer left out, rolls every sequence and layer back."""
    cache = CACHES[name](tiny_config())
    a, b = cache.add(), cache.add()
    feed(cache, {a: [1, 2], b: [3]})
    before = cache.nbytes
    with pytest.raises(RuntimeError, match="broken"), cache.step({a: 3, b: 1}) as view:
        view.append(0, *kv(cache.config, 0, [7, 8, 9, 6], view.positions.tolist()))
        raise RuntimeError("broken")
    with pytest.raises(CacheError, match=r"layers \[1\] got no keys"), cache.step({a: 1}) as view:
        view.append(0, *kv(cache.config, 0, [7], view.positions.tolist()))
    assert_holds(cache, a, [1, 2])
    assert_holds(cache, b, [3])
    assert cache.nbytes == before


@keeping_cache
@pytest.mark.parametrize("seed", range(3))
def test_a_long_random_life(name, seed):
    """400 random operations against plain lists: the cache always holds what the lists say."""
    rng, cache, lists = random.Random(seed), CACHES[name](tiny_config(L=1)), {}
    for turn in range(400):
        action = rng.choice(["add", "feed", "feed", "feed", "fork", "free", "truncate", "keep", "fail"])
        if action in ("add", "fork") and len(lists) < 6:
            if action == "add" or not lists:
                lists[cache.add()] = []
            else:
                source = rng.choice(list(lists))
                lists[cache.fork(source)] = list(lists[source])
        elif lists and action in ("feed", "fail"):
            new = {seq: [rng.randrange(97) for _ in range(rng.randint(1, 4))] for seq in rng.sample(list(lists), rng.randint(1, len(lists)))}
            new = {seq: t for seq, t in new.items() if len(lists[seq]) + len(t) < 60}
            if new and action == "feed":
                starts = {seq: lists[seq][-1][1] + 1 if lists[seq] else 0 for seq in new}
                feed(cache, new)
                for seq, tokens in new.items():
                    lists[seq] += [(t, starts[seq] + i) for i, t in enumerate(tokens)]
            elif new:
                with pytest.raises(KeyboardInterrupt), cache.step({seq: len(t) for seq, t in new.items()}):
                    raise KeyboardInterrupt
        elif lists:
            seq = rng.choice(list(lists))
            n = len(lists[seq])
            if action == "free":
                cache.free(seq)
                del lists[seq]
            elif action == "truncate":
                length = rng.randint(0, n)
                cache.truncate(seq, length)
                del lists[seq][length:]
            elif action == "keep":
                spared = sorted(rng.sample(range(n), rng.randint(0, n)))
                cache.keep(seq, spared)
                lists[seq] = [lists[seq][i] for i in spared]
        if turn % 10 == 0:
            for seq, held in lists.items():
                assert_holds(cache, seq, [t for t, _ in held], [p for _, p in held])
    assert set(cache.sequences) == set(lists)


@every_cache
def test_what_makes_no_sense_is_refused_before_anything_happens(name):
    cache = CACHES[name](tiny_config())
    seq = cache.add()
    refusals = [
        (lambda: cache.step({}), "at least one sequence"),
        (lambda: cache.step({seq + 1: 1}), "not in this cache"),
        (lambda: cache.step({seq: 0}), "at least 1"),
        (lambda: cache.step({seq: 2}, {seq: [-1]}), "1 parents"),
        (lambda: cache.step({seq: 2}, {seq: [-1, 1]}), "earlier new token"),
        (lambda: cache.step({seq: 1}, {seq + 1: [-1]}), "not in the step"),
    ]
    for make, message in refusals:
        with pytest.raises(CacheError, match=message), make():
            raise AssertionError("the step must not begin")
    for call, message in [
        (lambda: cache.free(seq + 1), "not in this cache"),
        (lambda: cache.truncate(seq, 1), "cannot truncate"),
        (lambda: cache.keep(seq, [0]), "ascending indices"),
        (lambda: cache.length(seq + 1), "not in this cache"),
    ]:
        with pytest.raises(CacheError, match=message):
            call()
    with pytest.raises(CacheError, match="inside a step"), cache.step({seq: 1}):
        cache.add()
    with pytest.raises(CacheError, match="already appended"), cache.step({seq: 1}) as view:
        for _ in range(2):
            view.append(0, *kv(cache.config, 0, [1], [0]))
    with pytest.raises(CacheError, match="layer 2 does not exist"), cache.step({seq: 1}) as view:
        view.append(2, *kv(cache.config, 0, [1], [0]))
    with pytest.raises(CacheError, match="got 2 keys"), cache.step({seq: 1}) as view:
        view.append(0, *kv(cache.config, 0, [1, 2], [0, 1]))
    cache.free(seq)
    with pytest.raises(CacheError, match="not in this cache"):
        cache.free(seq)


@keeping_cache
@pytest.mark.parametrize("heads", HEADS)
def test_greedy_tokens_equal_the_loop_without_a_cache(name, heads):
    cache = CACHES[name](tiny_config(*heads))
    model = tiny_model(cache.config)
    prompt = random_ids(9)
    wanted = greedy_uncached(model, prompt, 20)
    assert len(set(wanted)) > 3, "a constant output would prove nothing"
    assert greedy_cached(model, prompt, 20, cache) == wanted
