"""Recorded decode steps: the answers of plain steps, whatever fills the recording up; only the spare page is touched besides."""

import random

import pytest
import torch

from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.engine.graphs import Again, DecodeGraphs
from kvedu.errors import CacheError
from kvedu.kernels import native
from tiny import tiny_config, tiny_model

pytestmark = pytest.mark.skipif(isinstance(native.library(), native.Unavailable), reason="no paged kernel here to record, and no GPU")


def filled(model, lengths: list[int], spare: bool = True) -> tuple[PagedCache, list[int]]:
    """A cache with sequences of these lengths, computed by the model."""
    cache = PagedCache(model.config, n_pages=40, page_size=4, spare=spare)
    seqs = [cache.add() for _ in lengths]
    ids = [i % 90 + 1 for length in lengths for i in range(length)]
    with torch.inference_mode(), cache.step(dict(zip(seqs, lengths))) as view:
        model.hidden(torch.tensor(ids), view)
    return cache, seqs


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_replayed_steps_equal_plain_ones(count: int) -> None:
    """Through page boundaries, over many steps, with other sequences each time."""
    model = tiny_model(tiny_config(D=16))
    lengths = [3 + 2 * i for i in range(count)]
    (plain, seqs), (steady, others) = filled(model, lengths), filled(model, lengths)
    graphs = DecodeGraphs(model, steady, ladder=(1, 2, 4, 8), record=Again)
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


def test_what_the_spare_page_holds_reaches_nobody() -> None:
    """C067's kind: rows that only fill up the batch. Not even NaN in their page reaches another row."""
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


def test_pages_of_codes_have_no_spare_page() -> None:
    with pytest.raises(CacheError, match="leave spare out"):
        PagedQuantizedCache(tiny_config(), format=KVFormat.int8(group=8), n_pages=4, page_size=4, spare=True)


def test_a_spare_page_is_one_page_more() -> None:
    """And it counts among the bytes."""
    config = tiny_config()
    with_, without = (PagedCache(config, n_pages=10, page_size=4, spare=spare) for spare in (True, False))
    assert with_.n_blocks == without.n_blocks == 10 and with_.nbytes == without.nbytes // 10 * 11
    assert with_.spare_page == 10 and without.spare_page is None
