"""The engine over pages in few bits: every output is what the prompt gives alone, whatever the company and the preemptions."""

import pytest
import torch

from engines import assert_accounts, assert_all_came_back, run_out
from kvedu.caches.formats import integer, rotated
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.prefix_hash import HashReuse
from kvedu.caches.prefix_radix import RadixReuse
from kvedu.engine.engine import Engine
from kvedu.engine.preempt import Recompute, Swap
from kvedu.engine.trace import Admitted, Preempted
from kvedu.errors import CacheError, CacheFull
from kvedu.kernels.panel_linear import panels_pay
from kvedu.model.generate import generate
from lives import live
from tiny import random_ids, tiny_config, tiny_model

needs_bits = pytest.mark.skipif(
    not panels_pay(torch.float32),
    reason="without the native CPU kernels a batch rounds differently, and a code flips (no GPU needed)",
)
FORMATS = {
    "int8": KVFormat.int8(group=8),
    "int4 rotated, groups of tokens": KVFormat(rotated(integer(4, 2, "tokens")), integer(4, 8)),
    "kivi": KVFormat.kivi(bits=2, group=4, residual=4),
}


def engine_of(model, format, pages=7, page_size=4, **options):
    """An engine whose budget pays for so many pages, and for the tails."""
    settings = {"max_running": 4, "token_budget": 7} | options
    one = PagedQuantizedCache(model.config, format=format, n_pages=1, page_size=page_size, max_sequences=settings["max_running"])
    page = sum(x.numel() * x.element_size() for x in one.page_tensors)
    return Engine(model, cache_bytes=one.nbytes + (pages - 1) * page, page_size=page_size, kv_format=format, **settings)


def judge(model, engine, format, asked, aborted):
    for number, (prompt, wants) in asked.items():
        cache = PagedQuantizedCache(model.config, format=format, n_pages=60, page_size=4)
        wanted = generate(model, [prompt], cache=cache, **wants)[0]
        for got, alone in zip(engine.results(number), [wanted] if wants["n"] == 1 else wanted):
            assert got.token_ids == alone.token_ids[: len(got.token_ids)]
            assert number in aborted or got.finish_reason == alone.finish_reason


@needs_bits
@pytest.mark.parametrize(
    ("name", "reuse"),  # a format with a residual refuses reuse; the refusal has a test of its own
    [(name, reuse) for name, format in FORMATS.items() for reuse in (None, HashReuse, RadixReuse) if not (reuse and format.residual)],
)
@pytest.mark.parametrize("how", ["recompute", "swap", "swap little"])
def test_long_lives(name, how, reuse):
    """Preempted, swapped, forked, aborted and cut into chunks in a pool that is too small: same tokens as alone."""
    format = FORMATS[name]
    model = tiny_model(tiny_config(L=1, eos_ids=(3,)), scale=0.15).pack()
    preempt = {"recompute": Recompute(), "swap": Swap(10**6), "swap little": Swap(3000)}[how]
    engine = engine_of(model, format, reuse=reuse, preempt=preempt)
    asked, aborted = live(1, model, engine, max_requests=60, turns=400)
    run_out(engine)
    assert_all_came_back(engine)
    judge(model, engine, format, asked, aborted)
    swapped = sum(event.swapped_bytes is not None for event in engine.trace.of(Preempted))
    assert sum(1 for _ in engine.trace.of(Preempted)) > 3 and len(aborted) > 2
    if how == "swap":
        assert swapped > 3 and sum(event.swapped_bytes is not None for event in engine.trace.of(Admitted)) > 3


def test_fewer_bits_more_pages():
    """One budget: int8 holds nearly twice the tokens of bf16, and the budget is kept."""
    model = tiny_model(tiny_config(D=16)).to(torch.bfloat16)
    plain, eight = (Engine(model, cache_bytes=10**5, kv_format=f) for f in (None, KVFormat.int8(group=16)))
    assert 1.5 < eight.cache.n_blocks / plain.cache.n_blocks <= 2
    assert max(plain.cache.nbytes, eight.cache.nbytes) <= 10**5


@needs_bits
def test_a_prefix_of_codes_is_found_again():
    """Prefix reuse over codes: fewer tokens computed, the same answer."""
    model = tiny_model(tiny_config(D=16)).pack()
    prompt = random_ids(40)
    engine = engine_of(model, KVFormat.int8(group=16), pages=40, reuse=HashReuse, token_budget=64)
    first, again = (engine.generate([prompt], max_new_tokens=6, ignore_eos=True)[0] for _ in range(2))
    assert first.token_ids == again.token_ids
    reused = [event.reused for event in engine.trace.of(Admitted)]
    assert reused[0] == 0 and reused[1] >= 36
    assert_accounts(engine)


def test_refused_when_the_engine_is_made():
    model = tiny_model(tiny_config(D=32))
    with pytest.raises(CacheError, match="remembered as codes"):
        Engine(model, cache_bytes=10**8, page_size=32, kv_format=KVFormat.kivi(), reuse=HashReuse)
    with pytest.raises(CacheError, match="no whole groups of 32.*multiple of 32"):
        Engine(model, cache_bytes=10**8, kv_format=KVFormat.kivi())
    with pytest.raises(CacheFull, match="tails"):
        Engine(model, cache_bytes=10**5, page_size=32, kv_format=KVFormat.kivi())
