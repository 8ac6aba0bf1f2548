"""Quantized pages: what a query sees depends on positions alone, bytes as counted, pages that live like any others."""

import doctest

import pytest
import torch

from cache_cases import contents, feed, kv
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.caches import kv_format
from kvedu.caches.formats import float8, integer, rotated, with_apart
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.outliers import find_outliers
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.quantized import QuantizedCache
from kvedu.caches.tails import Tails
from kvedu.errors import CacheError, CacheFull
from kvedu.kernels.panel_linear import panels_pay
from kvedu.kernels.quantized_pages import CodedPages
from tiny import random_ids, tiny_config, tiny_model

FORMATS = {
    "int8": KVFormat.int8(group=16),
    "fp8": KVFormat.fp8(),
    "int4, residual": KVFormat(integer(4, 16), integer(4, 8, symmetric=True), residual=5),
    "kivi": KVFormat.kivi(bits=2, group=4, residual=6),
    "groups of tokens, no residual": KVFormat(integer(4, 8, "tokens"), integer(4, 4, "tokens")),
    "rotated": KVFormat(rotated(integer(4, 16)), rotated(float8("e5m2", 8))),
}
every_format = pytest.mark.parametrize("name", FORMATS)


def cache_of(format, config=None, **settings):
    settings = {"n_pages": 40, "page_size": 8, "max_sequences": 4} | settings
    return PagedQuantizedCache(config or tiny_config(D=16), format=format, **settings)


def held(cache):
    """Bytes of all tensors that hang from a cache, found without asking it; each storage once."""
    storages, todo = {}, [vars(cache)]
    while todo:
        thing = todo.pop()
        if isinstance(thing, torch.Tensor):
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        elif isinstance(thing, dict):
            todo += thing.values()
        elif isinstance(thing, (list, tuple)):
            todo += thing
        elif isinstance(thing, (CodedPages, Tails)):
            todo.append(vars(thing))
    return sum(storages.values())


@torch.inference_mode()
def logits(model, cache, ids, chunk):
    """Logits of every token of a prompt that comes in chunks."""
    seq, outs = cache.add(), []
    for part in torch.tensor(ids).split(chunk):
        with cache.step({seq: len(part)}) as view:
            outs.append(model(part, view))
    return torch.cat(outs)


@pytest.mark.skipif(not panels_pay(torch.bfloat16), reason="the native CPU kernels do not run here (no GPU needed)")
@every_format
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_prompts_logits_do_not_depend_on_its_chunks(name, dtype):
    """The law that the model's eyes need: not what is stored, but what each query sees, is the same however tokens come."""
    model = tiny_model(tiny_config(H=6, K=2, D=16, L=2)).to(dtype).pack()
    ids = random_ids(75)
    whole = logits(model, cache_of(FORMATS[name], model.config, dtype=dtype), ids, 75)
    for chunk in (1, 7, 32):
        assert torch.equal(logits(model, cache_of(FORMATS[name], model.config, dtype=dtype), ids, chunk), whole)


@every_format
def test_decoding_first_gives_the_same(name):
    """Fused and plain: two ways to one output."""
    model, ids = tiny_model(tiny_config(H=6, K=2, D=16)), random_ids(60)
    fused, plain = (logits(model, cache_of(FORMATS[name], model.config, fused=f), ids, 13) for f in (True, False))
    torch.testing.assert_close(fused, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["int8", "fp8", "int4, residual"])
def test_what_a_query_sees_is_what_one_token_at_a_time_would_show_it(name):
    """A chunk over pages against the plain quantized cache, fed token by token."""
    model, ids, format = tiny_model(tiny_config(H=6, K=2, D=16)), random_ids(40), FORMATS[name]
    slow = QuantizedCache(model.config, keys=format.keys, values=format.values, residual=format.residual)
    torch.testing.assert_close(
        logits(model, cache_of(format, model.config), ids, 40), logits(model, slow, ids, 1), rtol=1e-3, atol=1e-3
    )


@every_format
def test_bytes_are_pages_and_tails(name):
    """C016's neighbor, memory: all storages found by hand, ``nbytes`` and the formula agree to the byte."""
    format, config = FORMATS[name], tiny_config(D=16, L=3)
    cache = cache_of(format, config, undo=3)
    tails = 4 * (format.tail + 3) if format.tail else 0
    formula = kv_cache_bytes(config, 40 * 8, keys=format.keys.sized, values=format.values.sized)
    formula += kv_cache_bytes(config, tails, bytes_per_element=4)
    assert cache.nbytes == held(cache) == formula
    feed(cache, {cache.add(): random_ids(30)})
    assert cache.nbytes == held(cache) == formula


@every_format
@pytest.mark.parametrize("budget", [200_000, 71_000])
def test_a_budget_is_spent_and_not_exceeded(name, budget):
    format, config = FORMATS[name], tiny_config(D=16)
    cache = PagedQuantizedCache.within(config, budget, format, page_size=8, max_sequences=3)
    page = sum(x[0].numel() * x.element_size() for x in cache.page_tensors)
    assert budget - page < cache.nbytes <= budget
    with pytest.raises(CacheFull, match="do not pay for"):
        PagedQuantizedCache.within(config, 50, format, page_size=8, max_sequences=3)


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("prompt", [3, 4, 5, 6])
def test_decoded_tokens_are_coded_like_a_prompts(prompt, group):
    """C017: residual 4; a prompt, then 10 single steps: the last 4 exact, the exact part never above residual + group - 1."""
    cache = cache_of(KVFormat(integer(8, group, "tokens"), integer(2, 8), residual=4))
    tokens, seq = random_ids(prompt + 10), cache.add()
    for n in [prompt, *range(prompt + 1, prompt + 11)]:
        feed(cache, {seq: tokens[cache.length(seq) : n]})
        assert cache.length(seq) == n and n - cache.coded(n) <= 4 + group - 1 or n <= 4
        for layer in range(cache.n_layers):
            for x, wanted in zip(contents(cache, seq, layer), kv(cache.config, layer, tokens[:n], list(range(n)))):
                exact = (x == wanted).flatten(1).all(1)
                assert exact[cache.coded(n) :].all() and not exact[: cache.coded(n)].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("keys", [integer(8, 4, "tokens"), integer(4, 16), integer(4, 8, "tokens", symmetric=True), float8("e4m3", 4, "tokens")], ids=str)
def test_attention_over_channels_that_do_not_vary_is_finite(keys, dtype):
    """C016: channels that are 0, constant, or hardly vary, coded in pages and attended to: finite, and a constant one comes back."""
    config = tiny_config(L=1, D=16)
    k_NKD = torch.randn(24, 2, 16, generator=torch.Generator().manual_seed(3))
    k_NKD[..., 0], k_NKD[..., 1], k_NKD[..., 2] = 0.0, 100.0, torch.linspace(0, 1e-6, 24)[:, None]
    v_NKD, q_NHD = kv(config, 0, random_ids(24), list(range(24)))[1], torch.linspace(-1, 1, 64).view(1, 4, 16).to(dtype)
    outs = []
    for cache in (cache_of(KVFormat(keys, integer(8, 16)), config, dtype=dtype), cache_of(KVFormat.int8(16), config, dtype=dtype, page_size=32)):
        seq = cache.add()
        with cache.step({seq: 24}) as view:
            view.append(0, k_NKD, v_NKD)
        with cache.step({seq: 1}) as view:
            view.append(0, k_NKD[:1], v_NKD[:1])
            outs.append(view.attend(0, q_NHD)[0].float())
        held_k = contents(cache, seq, 0)[0]
        assert held_k.isfinite().all() and outs[-1].isfinite().all()
        assert not held_k[:24, :, 0].any() or cache.format.keys.group == 16  # per token the neighbors' range rounds a 0
        assert ((held_k[:24, :, 1] - 100).abs() < 5).all()


def test_channels_apart_in_pages():
    model, ids = tiny_model(tiny_config(H=6, K=2, D=16)), random_ids(50)
    channels = find_outliers(model, model.config, ids[:20], 2)
    format = KVFormat(with_apart(integer(4, 16), 2), integer(8, 16), apart=channels)
    cache = cache_of(format, model.config)
    slow = QuantizedCache(model.config, keys=format.keys, values=format.values, apart=channels)
    torch.testing.assert_close(logits(model, cache, ids, 50), logits(model, slow, ids, 1), rtol=1e-3, atol=1e-3)
    assert cache.nbytes == held(cache) > cache_of(KVFormat(integer(4, 16), integer(8, 16)), model.config).nbytes


@every_format
def test_forks_share_pages_and_grow_apart(name):
    cache = cache_of(FORMATS[name])
    seq, alone = cache.add(), cache.add()
    tokens = random_ids(21)
    feed(cache, {seq: tokens[:18], alone: tokens[:18]})
    used = cache.tables.pool.in_use
    twin = cache.fork(seq)
    assert cache.tables.pool.in_use == used
    feed(cache, {twin: [90, 91], seq: tokens[18:]})
    feed(cache, {alone: tokens[18:]})
    for layer in range(cache.n_layers):
        assert all(torch.equal(a, b) for a, b in zip(contents(cache, seq, layer), contents(cache, alone, layer)))
        own = kv(cache.config, layer, [91], [19])
        got = contents(cache, twin, layer)
        assert all(x.shape[0] == 20 and (x[-1] - y[0]).abs().max() < 1.5 for x, y in zip(got, own))


@every_format
@pytest.mark.parametrize("back", [1, 4, 8])
def test_rejected_drafts_leave_no_trace(name, back):
    """Truncate within ``undo``, go on, and hold what a sequence holds that never had them."""
    cache, tokens = cache_of(FORMATS[name], undo=8), random_ids(50)
    seq, never = cache.add(), cache.add()
    feed(cache, {seq: tokens[:29]})
    feed(cache, {seq: [90] * back})
    cache.truncate(seq, 29)
    for start in (29, 33):
        feed(cache, {seq: tokens[start : start + 4]})
    feed(cache, {never: tokens[:37]})
    for layer in range(cache.n_layers):
        assert all(torch.equal(a, b) for a, b in zip(contents(cache, seq, layer), contents(cache, never, layer)))


def test_a_cut_deeper_than_the_tail_is_refused_and_changes_nothing():
    cache = cache_of(FORMATS["kivi"], undo=2)
    seq = cache.add()
    feed(cache, {seq: random_ids(30)})
    before = contents(cache, seq, 0)
    with pytest.raises(CacheError, match="cannot be cut to 17 tokens.*tail goes back to token 19"):
        cache.truncate(seq, 17)
    assert cache.length(seq) == 30 and all(torch.equal(a, b) for a, b in zip(before, contents(cache, seq, 0)))
    cache.truncate(seq, 0)
    assert cache.length(seq) == 0


@every_format
def test_a_trees_path_is_coded_as_a_chain(name):
    cache = cache_of(FORMATS[name])
    seq, chain = cache.add(), cache.add()
    feed(cache, {seq: list(range(14))})
    feed(cache, {seq: [20, 21, 22, 23, 24]}, parents={seq: [-1, 0, 0, 2, 1]})
    with pytest.raises(CacheError, match="keep\\(\\) one path"):
        cache.fork(seq)
    cache.keep(seq, [*range(14), 14, 16, 17])
    feed(cache, {chain: [*range(14), 20, 22, 23]})
    for turn in range(2):
        for layer in range(cache.n_layers):
            assert all(torch.equal(a, b) for a, b in zip(contents(cache, seq, layer), contents(cache, chain, layer)))
        feed(cache, {seq: [30] * 9, chain: [30] * 9})


@pytest.mark.parametrize("name", ["int8", "int4, residual", "rotated"])
def test_a_trees_branch_sees_what_a_chain_sees(name):
    """Output of a node deep in a tree, and of the chain that is its path."""
    cache, generator = cache_of(FORMATS[name], config := tiny_config(D=16)), torch.Generator().manual_seed(0)
    tree, chain = cache.add(), cache.add()
    feed(cache, {tree: list(range(20)), chain: list(range(20))})
    q_NHD = torch.randn(3, config.H, config.D, generator=generator)
    with cache.step({tree: 4}, {tree: [-1, 0, 0, 2]}) as view:
        for layer in range(config.L):
            view.append(layer, *kv(config, layer, [30, 31, 32, 33], view.positions.tolist()))
            branch = view.attend(layer, q_NHD[[0, 1, 1, 2]])
    with cache.step({chain: 3}) as view:
        for layer in range(config.L):
            view.append(layer, *kv(config, layer, [30, 32, 33], view.positions.tolist()))
            path = view.attend(layer, q_NHD)
    torch.testing.assert_close(branch[[0, 2, 3]], path, rtol=1e-4, atol=1e-5)


def test_single_tokens_can_be_thinned_out_only_without_a_tail():
    cache = cache_of(FORMATS["int8"])
    seq = cache.add()
    feed(cache, {seq: random_ids(20)})
    before = contents(cache, seq, 1)
    cache.keep(seq, [0, 3, 9, 19])
    assert all(torch.equal(a, b[[0, 3, 9, 19]]) for a, b in zip(contents(cache, seq, 1), before))
    feed(cache, {seq: [5]})
    assert cache.positions(seq) == [0, 3, 9, 19, 20]
    tailed = cache_of(FORMATS["kivi"])
    seq = tailed.add()
    feed(tailed, {seq: random_ids(20)})
    with pytest.raises(CacheError, match="cannot be thinned out"):
        tailed.keep(seq, [0, 3])
    tailed.keep(seq, range(19))
    assert tailed.length(seq) == 19


@every_format
def test_a_failing_step_changes_nothing(name):
    cache = cache_of(FORMATS[name])
    seq, same = cache.add(), cache.add()
    tokens = random_ids(30)
    feed(cache, {seq: tokens[:13], same: tokens[:13]})
    with pytest.raises(KeyboardInterrupt), cache.step({seq: 9}) as view:
        view.append(0, *kv(cache.config, 0, [1] * 9, view.positions.tolist()))
        raise KeyboardInterrupt
    feed(cache, {seq: tokens[13:], same: tokens[13:]})
    for layer in range(cache.n_layers):
        assert all(torch.equal(a, b) for a, b in zip(contents(cache, seq, layer), contents(cache, same, layer)))


@every_format
def test_swapped_out_and_back(name):
    """Pages and tail go to host memory and return; others use the pages and the tail in between."""
    cache, tokens = cache_of(FORMATS[name], n_pages=8, max_sequences=2), random_ids(50)
    space = cache.swap_space(10**6)
    assert space.nbytes <= 10**6
    seq = cache.add()
    feed(cache, {seq: tokens[:29]})
    before = [contents(cache, seq, layer) for layer in range(cache.n_layers)]
    parked, out = space.out(seq)
    others = [cache.add() for _ in range(2 if cache.window_kept else 3)]
    feed(cache, {other: random_ids(15, seed=3) for other in others})
    for other in others:
        cache.free(other)
    seq, back = space.back(parked)
    assert out == back > 0
    for layer, pair in enumerate(before):
        assert all(torch.equal(a, b) for a, b in zip(contents(cache, seq, layer), pair))
    never = cache.add()
    feed(cache, {never: tokens[:29]})
    feed(cache, {seq: tokens[29:32], never: tokens[29:32]})
    assert all(torch.equal(a, b) for a, b in zip(contents(cache, seq, 0), contents(cache, never, 0)))


@pytest.mark.parametrize("name", ["int8", "groups of tokens, no residual", "rotated"])
def test_prefixes_are_reused(name):
    """Pages of codes, found by their tokens: the sequence that starts from them goes on to the same bits."""
    cache, tokens = cache_of(FORMATS[name], reuse=HashReuse(8)), random_ids(40)
    first = cache.add()
    feed(cache, {first: tokens[:27]})
    cache.remember(first, tokens[:27])
    again, reused = cache.add_prefix(tokens[:30])
    assert reused == 24
    feed(cache, {again: tokens[24:30], first: tokens[27:30]})
    for layer in range(cache.n_layers):
        assert all(torch.equal(a, b) for a, b in zip(contents(cache, again, layer), contents(cache, first, layer)))


def test_where_tails_run_out():
    cache = cache_of(FORMATS["kivi"], max_sequences=2)
    a, _ = cache.add(), cache.add()
    for call in (cache.add, lambda: cache.fork(a), lambda: cache.add_prefix([1, 2])):
        with pytest.raises(CacheFull, match="all 2 tails are in use"):
            call()
    cache.free(a)
    assert len({cache.add()}) == 1
    without = cache_of(FORMATS["int8"], max_sequences=1)
    assert len({without.add() for _ in range(5)}) == 5


def test_examples():
    result = doctest.testmod(kv_format)
    assert result.failed == 0 and result.attempted == 1


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: cache_of(KVFormat.kivi(group=32), tiny_config(D=32)), "pages of 8 tokens hold no whole groups of 32.*multiple of 32"),
        (lambda: cache_of(KVFormat.int8(group=5)), "groups of 5 do not divide a head of 16"),
        (lambda: cache_of(FORMATS["kivi"], reuse=HashReuse(8)), "remembered as codes.*residual=0, or no reuse"),
        (lambda: KVFormat(integer(8, 8), integer(8, 8), residual=-1), "at least 0, not -1"),
        (lambda: KVFormat.fp8("e3m4"), "no format 'e3m4'"),
        (lambda: KVFormat.kivi(bits=3), "2, 4 or 8 bits"),
        (lambda: cache_of(KVFormat(with_apart(integer(4, 16), 1), integer(4, 16))), "none were given"),
    ],
)
def test_refused(make, message):
    with pytest.raises(CacheError, match=message):
        make()
