"""Recorded decode steps: the answers of plain steps, whatever fills the recording up; only the spare page is touched besides."""

import random

import pytest
import torch

from kvedu.caches.formats import integer, rotated
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.engine.graphs import Again, DecodeGraphs
from kvedu.errors import CacheError
from kvedu.kernels import native
from tiny import tiny_config, tiny_model

pytestmark = pytest.mark.skipif(isinstance(native.library(), native.Unavailable), reason="no paged kernel here to record, and no GPU")


FORMATS = {"int8": KVFormat.int8(group=8), "kivi": KVFormat.kivi(bits=2, group=4, residual=4), "turned": KVFormat(rotated(integer(4, 2, "tokens")), integer(4, 8))}


def filled(model, lengths: list[int], spare: bool = True) -> tuple[PagedCache, list[int]]:
    """A cache with sequences of these lengths, computed by the model."""
    cache = PagedCache(model.config, n_pages=40, page_size=4, spare=spare)
    seqs = [cache.add() for _ in lengths]
    ids = [i % 90 + 1 for length in lengths for i in range(length)]
    with torch.inference_mode(), cache.step(dict(zip(seqs, lengths))) as view:
        model.hidden(torch.tensor(ids), view)
    return cache, seqs


@pytest.mark.parametrize("count, fused", [(1, False), (2, True), (3, False), (5, True), (8, True)])
def test_replayed_steps_equal_plain_ones(count: int, fused: bool) -> None:
    """Through page boundaries, over many steps, with other sequences each time; the model's own step, or fused."""
    model = tiny_model(tiny_config(D=16, qk_norm=count > 3))
    lengths = [3 + 2 * i for i in range(count)]
    (plain, seqs), (steady, others) = filled(model, lengths), filled(model, lengths)
    graphs = DecodeGraphs(model, steady, ladder=(1, 2, 4, 8), record=Again, fused=fused)
    draw = random.Random(count)
    with torch.inference_mode():
        for step in range(12):
            chosen = sorted(draw.sample(range(count), draw.randint(1, count)))
            ids = [draw.randint(1, 90) for _ in chosen]
            with plain.step({seqs[i]: 1 for i in chosen}) as view:
                wanted = model(torch.tensor(ids), view)
            with steady.step({others[i]: 1 for i in chosen}) as view:
                assert graphs.takes(view)
                got = graphs.logits(ids, view).clone()
            assert torch.allclose(got, wanted, atol=1e-4), step
    assert all(torch.allclose(a[:40], b[:40], atol=1e-4) for a, b in zip(plain.page_tensors, steady.page_tensors))
    assert {batch for batch, _ in graphs.recorded} <= {1, 2, 4, 8} and len({width for _, width in graphs.recorded}) > 1


def test_tables_that_change_under_a_recording() -> None:
    """A fork that gets a page of its own, a sequence that leaves and one that takes its place and pages: tables are copied in when they change, and always then."""
    model = tiny_model(tiny_config(D=16))
    (plain, seqs), (steady, others) = filled(model, [6, 7, 8]), filled(model, [6, 7, 8])
    graphs = DecodeGraphs(model, steady, ladder=(4,), record=Again)
    draw = random.Random(0)
    with torch.inference_mode():
        for step in range(16):
            for cache, held in ((plain, seqs), (steady, others)):
                if step % 4 == 1:
                    held.append(cache.fork(held[0]))
                if step % 4 == 3:
                    cache.free(held.pop(1))
            ids = [draw.randint(1, 90) for _ in seqs]
            with plain.step(dict.fromkeys(seqs, 1)) as view:
                wanted = model(torch.tensor(ids), view)
            with steady.step(dict.fromkeys(others, 1)) as view:
                assert torch.allclose(graphs.logits(ids, view), wanted, atol=1e-4), step


def test_what_the_spare_page_holds_reaches_nobody() -> None:
    """C046: what else is in the batch must not show, rows that only fill it up least of all. Not even NaN in their page reaches another row."""
    model = tiny_model(tiny_config(D=16))
    cache, seqs = filled(model, [5, 6, 7])
    for pages in cache.page_tensors:
        pages[cache.spare_page] = torch.nan
    graphs = DecodeGraphs(model, cache, ladder=(8,), record=Again)
    with torch.inference_mode(), cache.step({seq: 1 for seq in seqs}) as view:
        assert graphs.logits([1, 2, 3], view).isfinite().all()
    assert cache.tables.pool.in_use == sum(len(cache.tables.tables[seq]) for seq in seqs), "the spare page is nobody's"


def test_other_steps_are_not_taken() -> None:
    model = tiny_model(tiny_config(D=16))
    cache, seqs = filled(model, [5, 6, 7])
    graphs = DecodeGraphs(model, cache, ladder=(1, 2), record=Again)
    steps = ({seqs[0]: 2}, {seq: 1 for seq in seqs})
    for counts in steps:
        with pytest.raises(RuntimeError, match="stop"), cache.step(counts) as view:
            assert not graphs.takes(view)
            raise RuntimeError("stop")


def test_a_cache_without_a_spare_page_is_refused() -> None:
    model = tiny_model(tiny_config(D=16))
    cache, _ = filled(model, [5], spare=False)
    with pytest.raises(CacheError, match="spare=True"):
        DecodeGraphs(model, cache, record=Again)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
def test_pages_of_codes_are_replayed_too(format: KVFormat, fused: bool) -> None:
    """Codes of complete units, and the tails of those that are not: what a plain step writes, whatever fills the recording up."""
    model = tiny_model(tiny_config(D=16)).pack()
    caches = [PagedQuantizedCache(model.config, format=format, n_pages=40, page_size=4, spare=True) for _ in range(2)]
    lengths, ids = [3, 5, 8], [i % 90 + 1 for length in (3, 5, 8) for i in range(length)]
    for cache in caches:
        seqs = [cache.add() for _ in lengths]
        with torch.inference_mode(), cache.step(dict(zip(seqs, lengths))) as view:
            model.hidden(torch.tensor(ids), view)
    plain, steady = caches
    graphs = DecodeGraphs(model, steady, ladder=(1, 2, 4), record=Again, fused=fused)
    draw = random.Random(0)
    with torch.inference_mode():
        for step in range(14):
            chosen = sorted(draw.sample(seqs, draw.randint(1, 3)))
            ids = [draw.randint(1, 90) for _ in chosen]
            with plain.step({seq: 1 for seq in chosen}) as view:
                wanted = model(torch.tensor(ids), view)
            with steady.step({seq: 1 for seq in chosen}) as view:
                got = graphs.logits(torch.tensor(ids) if step % 2 else ids, view).clone()
            assert torch.allclose(got, wanted, atol=1e-4), step
    assert all(torch.equal(a[:40], b[:40]) for a, b in zip(plain.page_tensors, steady.page_tensors))
    for a, b in zip(plain.tails.tensors, steady.tails.tensors):
        slots = [plain.slot(seq) for seq in seqs]
        assert torch.allclose(a[slots], b[slots], atol=1e-5) or not plain.window_kept


def test_a_tail_without_a_token_to_spare_is_refused() -> None:
    cache = PagedQuantizedCache(tiny_config(), format=FORMATS["kivi"], n_pages=4, page_size=4, undo=0, spare=True)
    with pytest.raises(CacheError, match="undo=1"):
        DecodeGraphs(tiny_model(), cache, record=Again)


def test_a_spare_page_is_one_page_more() -> None:
    """And it counts among the bytes."""
    config = tiny_config()
    with_, without = (PagedCache(config, n_pages=10, page_size=4, spare=spare) for spare in (True, False))
    assert with_.n_blocks == without.n_blocks == 10 and with_.nbytes == without.nbytes // 10 * 11
    assert with_.spare_page == 10 and without.spare_page is None
