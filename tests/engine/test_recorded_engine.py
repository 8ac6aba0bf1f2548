"""The engine with recorded decode steps: every output is what it is without, whatever is replayed and whatever is not."""

import pytest
import torch

import test_quantized_engine as coded
from engines import REUSE, assert_all_came_back, engine_of, page_bytes, run_out, solo
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.engine.engine import Engine
from kvedu.engine.graphs import Again, DecodeGraphs, recorder
from kvedu.engine.preempt import Recompute, Swap
from kvedu.engine.trace import Preempted
from kvedu.errors import CacheFull
from kvedu.kernels import native
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampling
from kvedu.rope_config import RopeConfig
from kvedu.speculative.ngram import NGram
from lives import judge, live
from tiny import random_ids, tiny_config, tiny_model

pytestmark = pytest.mark.skipif(isinstance(native.library(), native.Unavailable), reason="no paged kernel here to record, and no GPU")


class Counting(Again):
    """A recording that knows how often it ran."""

    replays = 0

    def replay(self):
        Counting.replays += 1
        super().replay()


def small_ladder(model, cache):
    """Recordings of one, two and four sequences; five are above it."""
    return DecodeGraphs(model, cache, ladder=(1, 2, 4), record=Counting)


@pytest.fixture
def replays():
    """How many steps were replayed since the test began."""
    before = Counting.replays
    return lambda: Counting.replays - before


@pytest.mark.parametrize("reuse", REUSE)
@pytest.mark.parametrize("host_pages", [None, 6])
@pytest.mark.parametrize("overlap", [False, True])
def test_long_lives(reuse, host_pages, overlap, replays):
    """C069, C071: preempted both ways, forked, aborted, reused, ended in mid-batch, on every rung and above the ladder: same tokens as alone."""
    model = tiny_model(tiny_config(L=1, eos_ids=(3,)), scale=0.15)
    preempt = Recompute() if host_pages is None else Swap(host_pages * page_bytes(model, 2))
    preempted, sizes = 0, set()
    for seed in range(2):
        engine = engine_of(
            model, pages=15, page_size=2, reuse=REUSE[reuse], max_running=5, token_budget=7, preempt=preempt,
            graphs=small_ladder, overlap=overlap,
        )  # fmt: skip
        asked, aborted = live(seed, model, engine, max_requests=60, turns=400)
        run_out(engine)
        assert_all_came_back(engine)
        judge(model, engine, asked, aborted)
        preempted += len(engine.trace.of(Preempted))
        sizes |= {batch for batch, _ in engine.executor.graphs.recorded}
    assert preempted > 3 and sizes == {1, 2, 4} and replays() > 100


def test_the_same_steps_as_without(replays):
    """With as many pages to give away, plans and tokens are equal step by step; above the ladder nothing is replayed."""
    model = tiny_model(tiny_config(L=1))
    plain, recorded = engine_of(model, pages=30), engine_of(model, pages=31, graphs=small_ladder)
    assert recorded.cache.spare_page == recorded.cache.n_blocks == plain.cache.n_blocks == 30
    above = 0
    for engine in (plain, recorded):
        for i in range(7):
            engine.add(random_ids(3 + i, seed=i), max_new_tokens=3 + 2 * i)
    while not plain.idle:
        before = replays()
        deltas = [[(d.prompt, d.token_ids, d.finish_reason) for d in engine.step()] for engine in (plain, recorded)]
        assert deltas[0] == deltas[1] and plain.last_plan.shares == recorded.last_plan.shares
        work = recorded.last_plan.work
        assert (replays() > before) == (len(work) <= 4 and all(w.tokens == 1 for w in work))
        above += len(work) > 4
    assert recorded.idle and above


@coded.needs_bits
@pytest.mark.parametrize("name", coded.FORMATS)
@pytest.mark.parametrize("overlap", [False, True])
def test_pages_of_codes(name, overlap, replays):
    """Codes and tails of recorded steps: same tokens as alone over the same format, preemption and all."""
    format, model = coded.FORMATS[name], tiny_model(tiny_config(L=1, eos_ids=(3,)), scale=0.15).pack()
    one = PagedQuantizedCache(model.config, format=format, n_pages=7, page_size=4, max_sequences=4, spare=True)
    engine = Engine(
        model, cache_bytes=one.nbytes, page_size=4, kv_format=format, max_running=4, token_budget=7, graphs=small_ladder, overlap=overlap
    )
    asked, aborted = live(1, model, engine, max_requests=30, turns=200)
    run_out(engine)
    assert_all_came_back(engine)
    assert engine.cache.nbytes <= one.nbytes and replays() > 30
    coded.judge(model, engine, format, asked, aborted)


@coded.needs_bits
def test_codes_that_no_kernel_reads_are_not_recorded(monkeypatch, replays):
    """They are decoded first, with the host's help, which a recording has not."""
    import kvedu.caches.quantized_view as view
    import kvedu.engine.graphs as graphs

    for module, name in ((view, "takes"), (graphs, "codes_taken")):
        monkeypatch.setattr(module, name, lambda *step: False)
    format, model = coded.FORMATS["int8"], tiny_model(tiny_config(L=1)).pack()
    engine = coded.engine_of(model, format, pages=20, graphs=small_ladder)
    [done] = engine.generate([[4, 5, 6]], max_new_tokens=5)
    cache = PagedQuantizedCache(model.config, format=format, n_pages=20, page_size=4)
    assert done.token_ids == generate(model, [[4, 5, 6]], max_new_tokens=5, cache=cache)[0].token_ids and not replays()


def test_guesses_and_scores_fall_back(replays):
    """Steps of those who guess, and single tokens whose logits score a prompt, are run plainly."""
    model = tiny_model(tiny_config(L=1))
    engine = engine_of(model, graphs=small_ladder, speculate=NGram(), token_budget=8)
    [done] = engine.generate([[5, 6, 5, 6, 5]], max_new_tokens=8)
    assert done.token_ids == solo(model, [5, 6, 5, 6, 5], 8) and not replays()
    engine = engine_of(model, graphs=small_ladder, chunk=1)
    plain = engine_of(model)
    for some in (engine, plain):
        some.add([7, 8, 9], max_new_tokens=1, prompt_logprobs=1)
        run_out(some)
    scores = [some.results(0)[0].prompt_logprobs for some in (engine, plain)]
    assert [s and s.token_id for s in scores[0]] == [s and s.token_id for s in scores[1]] and len(scores[0]) == 3
    assert all(abs(a.logprob - b.logprob) < 1e-4 for a, b in zip(scores[0][1:], scores[1][1:]))


def test_who_records(monkeypatch):
    """None asks the device, and a CPU has nothing to win; False is never; RoPE that changes its frequencies cannot be recorded."""
    model = tiny_model()
    assert recorder(model, None) is None and recorder(model, False) is None and recorder(model, True) is DecodeGraphs
    assert engine_of(model).executor.graphs is None and engine_of(model).cache.spare_page is None
    switching = tiny_model(tiny_config(rope=RopeConfig(dim=8, kind="dynamic", factor=2.0, max_positions=64)))
    engine = engine_of(switching, graphs=small_ladder)
    before = Counting.replays
    engine.generate([[4, 5, 6]], max_new_tokens=4)
    assert Counting.replays == before


def test_a_budget_that_pays_for_no_spare_page_says_so():
    model = tiny_model()
    with pytest.raises(CacheFull, match="spare"):
        engine_of(model, pages=1, graphs=small_ladder)


def test_broken_logits_end_their_own_text(replays):
    """C046: no cross-talk between rows; NaN weights for one token reach nobody else, recorded or ahead."""
    model = tiny_model(tiny_config(L=1))
    with torch.no_grad():
        model.embed.weight[13] = torch.nan
    engine = engine_of(model, graphs=small_ladder, overlap=True)
    healthy, broken = engine.add([5, 6, 7], max_new_tokens=6), engine.add([5, 13], max_new_tokens=6, sampling=Sampling(temperature=1.0, seed=1))
    run_out(engine)
    assert engine.results(broken)[0].finish_reason == "error" and engine.results(broken)[0].token_ids == ()
    assert engine.results(healthy)[0].token_ids == solo(model, [5, 6, 7], 6) and replays()


def test_a_broken_step_is_not_read_out_of_the_next_ones_logits():
    """A step ahead, a recording's logits are those of the next step by the time that a broken row's text is told."""
    model = tiny_model(tiny_config(L=1))
    prompts = [[5, 6, 7], [8, 9]]
    wanted = [solo(model, prompt, 12) for prompt in prompts]
    logits, calls = model.logits, iter(range(100))

    def once_broken(hidden_NM):
        found_NV = logits(hidden_NM)
        if next(calls) == 6:
            found_NV[0] = torch.nan
        return found_NV

    model.logits = once_broken
    engine = engine_of(model, graphs=small_ladder, overlap=True)
    broken, healthy = (engine.add(prompt, max_new_tokens=12) for prompt in prompts)
    run_out(engine)
    told = engine.results(broken)[0]
    assert told.finish_reason == "error" and 0 < len(told.token_ids) < 12 and told.token_ids == wanted[0][: len(told.token_ids)]
    assert engine.results(healthy)[0].token_ids == wanted[1]
