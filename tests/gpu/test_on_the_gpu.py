"""What `make gpu` tries at real sizes. Without a GPU the same functions run small: kernels interpreted, recordings by their double."""

import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("kernels", "engine")]

from attention_laws import law_equals_definition  # noqa: E402
from engines import engine_of, run_out, solo  # noqa: E402
from scenes import DEVICE, make_scene  # noqa: E402
from lives import judge, live  # noqa: E402
from test_quantized_attention import Made  # noqa: E402
from test_quantized_attention_triton import by_triton, here, there  # noqa: E402
from tiny import random_ids, tiny_config, tiny_model  # noqa: E402

from kvedu.caches.formats import float8, integer  # noqa: E402
from kvedu.caches.kv_format import KVFormat  # noqa: E402
from kvedu.caches.prefix_hash import HashReuse  # noqa: E402
from kvedu.engine.engine import Engine  # noqa: E402
from kvedu.engine.graphs import Again, DecodeGraphs  # noqa: E402
from kvedu.kernels import native  # noqa: E402
from kvedu.kernels.launch import chip_of, missing, runs_on  # noqa: E402
from kvedu.kernels.paged_attention import paged_attention  # noqa: E402
from kvedu.kernels.quantized_attention import quantized_attention, quantized_attention_reference  # noqa: E402

needs_triton = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")
needs_paged = pytest.mark.skipif(
    DEVICE == "cpu" and isinstance(native.library(), native.Unavailable), reason="no paged kernel on this CPU (no GPU needed)"
)
REAL = DEVICE != "cpu"
HALF = torch.bfloat16 if REAL and chip_of(torch.empty(0, device=DEVICE)).bf16 else torch.float16
HEADS = (32, 8, 128) if REAL else (6, 2, 32)
STEPS = {
    "decode": [(1, 4095)] * 32 if REAL else [(1, 40), (1, 21)],
    "one long": [(1, 32_767)] if REAL else [(1, 150)],
    "prompts": [(2048, 0), (300, 1700)] if REAL else [(20, 0), (5, 30)],
}
PAGES = (16, 64, 256) if REAL else (16,)


@needs_triton
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("C", PAGES)
@pytest.mark.parametrize("window", [None, 1000 if REAL else 20])
def test_attention(step, C, window):
    """Blocks and splits by rule, as they run in a model."""
    law_equals_definition(partial(paged_attention, triton=True), make_scene(STEPS[step], *HEADS, C, dtype=HALF), window)


@needs_triton
@pytest.mark.parametrize("name", ["int8", "int4", "e4m3", "KIVI"])
def test_pages_of_codes(name):
    """Written and attended to by the kernels; the judge reads the same codes."""
    K, D = HEADS[1:]
    formats = {
        "int8": (integer(8, D),) * 2, "int4": (integer(4, D),) * 2, "e4m3": (float8(),) * 2,
        "KIVI": (integer(4, 16, "tokens"), integer(4, 32)),
    }  # fmt: skip
    counts, starts = ((1,) * 6, (8191, 5000, 300, 17, 16, 0)) if REAL else ((1, 1, 1), (40, 16, 0))
    made = Made(*formats[name], torch.float32, D=D, K=K, C=64 if REAL else 16, residual=16, counts=counts, starts=starts)
    moved = there(made).write(by_triton)
    got = moved.attend(partial(quantized_attention, triton=True)).cpu()
    torch.testing.assert_close(got, here(made, moved).attend(quantized_attention_reference), rtol=1e-3, atol=1e-4)


@contextmanager
def no_waiting():
    """On a GPU every wait of the host for it is an error; waiting for an event, as ids are waited for, is none."""
    if REAL:
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if REAL:
            torch.cuda.set_sync_debug_mode("default")


def small_model(**changes):
    return tiny_model(tiny_config(L=2, D=16, eos_ids=(3,), **changes), scale=0.15).to(DEVICE)


def settings():
    """What an engine does by itself on a GPU; elsewhere by doubles."""
    return {} if REAL else {"graphs": lambda model, cache: DecodeGraphs(model, cache, record=Again), "overlap": True}


@needs_paged
@pytest.mark.parametrize("reuse", [None, HashReuse])
def test_the_engine(reuse):
    """Recorded, a step ahead, preempted, forked, aborted: same tokens as alone, and on a GPU by real recordings."""
    model = small_model()
    engine = engine_of(model, pages=15, page_size=2, reuse=reuse, max_running=5, token_budget=7, **settings())
    asked, aborted = live(3, model, engine, max_requests=20, turns=120)
    run_out(engine)
    judge(model, engine, asked, aborted)
    assert engine.executor.graphs.recorded and engine.overlap


@needs_paged
@pytest.mark.parametrize("changes", [{}, {"graphs": False}, {"overlap": False}, {"kv_format": KVFormat.int8(group=16)}], ids=["both", "no recordings", "no overlap", "int8"])
def test_nobody_waits_for_the_device(changes):
    """The second time, when all is compiled and recorded, no step makes the host wait; ``overlap=False`` waits for its ids alone."""
    model = small_model()
    engine = engine_of(model, pages=200, page_size=16, **settings() | changes)
    for _ in range(2):
        for i in range(5):
            engine.add(random_ids(4 + i, seed=i), max_new_tokens=6, ignore_eos=True)
        run_out(engine)
    for i in range(5):
        engine.add(random_ids(4 + i, seed=i), max_new_tokens=6, ignore_eos=True)
    with no_waiting():
        run_out(engine)
    if "kv_format" not in changes:
        assert all(engine.results(10 + i)[0].token_ids == solo(model, random_ids(4 + i, seed=i), 6) for i in range(5))


if REAL:

    def test_a_cache_as_large_as_the_memory():
        """Most of what is free, and the engine still runs its largest step."""
        model, free = small_model(), torch.cuda.mem_get_info()[0]
        engine = Engine(model, memory_share=0.5, page_size=256)
        assert 0.3 * free < engine.cache.nbytes <= 0.5 * free
        engine.generate([random_ids(500, seed=i) for i in range(4)], max_new_tokens=4)
