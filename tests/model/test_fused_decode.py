"""A fused step gives the model's own logits and pages, and launches nine kernels a layer."""

import copy
from collections import Counter
from functools import partial

import pytest
import torch

from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.static import StaticCache
from kvedu.errors import ConfigError
from kvedu.kernels import launch, paged_attention, rmsnorm, rope_write, swiglu
from kvedu.kernels.launches import launches
from kvedu.kernels.paged_attention import PagedLayout
from kvedu.model.fused_decode import fusable, fused_decode, hidden_over_pages
from kvedu.model.transformer import Transformer
from tiny import tiny_config, tiny_model


@pytest.mark.parametrize("shape", [{"D": 16}, {"H": 6, "K": 2, "D": 8}, {"H": 4, "K": 1, "D": 16}, {"D": 16, "qk_norm": True}])
@torch.inference_mode()
def test_logits_and_pages_are_the_models_own(shape) -> None:
    """Sequences of unequal lengths, over a page's end, for several steps."""
    model = tiny_model(tiny_config(**shape))
    lengths, pages = [3, 7, 12], []
    for fused in (False, True):
        cache = PagedCache(model.config, n_pages=24, page_size=4)
        seqs = [cache.add() for _ in lengths]
        with cache.step(dict(zip(seqs, lengths))) as view:
            model.hidden(torch.arange(sum(lengths)) % 90 + 1, view)
        logits = []
        for step in range(6):
            ids_B = torch.tensor([step + 1, 5 * step + 2, 40 - step])
            with cache.step({seq: 1 for seq in seqs}) as view:
                if fused:
                    rows = [(b, 1, row.start) for b, row in enumerate(view.rows)]
                    layout = PagedLayout.of([cache.tables.tables[seq] for seq in seqs], rows)
                    logits.append(fused_decode(model, cache.k, cache.v, ids_B, view.positions, view.slot_mapping, layout))
                    view.appended.update(range(model.config.L))
                else:
                    logits.append(model(ids_B, view))
        pages.append((torch.stack(logits), *cache.page_tensors))
    for plain, other in zip(*pages):
        assert torch.allclose(plain, other, atol=1e-4)


KERNELS = pytest.param(True, marks=pytest.mark.skipif(launch.missing() is not None, reason="Triton does not exist on this system"))


@pytest.mark.parametrize("kernels", [False, KERNELS])
@torch.inference_mode()
def test_any_step_over_pages_is_the_models_own(kernels, monkeypatch) -> None:
    """Prompts, a chunk on a forked page, a single token and a tree in one step; by the kernels too, on a GPU or in the interpreter."""
    model = tiny_model(tiny_config(H=6, K=2, D=16, L=2))
    device = "cuda" if kernels and torch.cuda.is_available() else "cpu"
    plain = two_steps(model, "cpu", Transformer.hidden)
    if kernels and device == "cpu":
        for module in (paged_attention, rmsnorm, rope_write, swiglu):
            monkeypatch.setattr(module, "triton_wanted", lambda *asked: True)
    fused = two_steps(model.to(device), device, partial(hidden_over_pages, fused=True))
    for wanted, got in zip(plain, fused):
        assert torch.allclose(wanted, got.cpu(), atol=1e-4)


def two_steps(model, device, hidden):
    """What ``hidden`` gives for two steps of several sequences, and their pages after them."""
    cache = PagedCache(model.config, n_pages=24, page_size=4, device=device)
    a, b = cache.add(), cache.add()
    with cache.step({a: 6, b: 3}) as view:
        first = hidden(model, torch.arange(9, device=device) + 1, view)
        assert view.appended == set(range(model.config.L))
    c = cache.fork(a)
    with cache.step({a: 1, c: 5, b: 4}, {b: [-1, 0, 0, 1]}) as view:
        second = hidden(model, torch.arange(10, device=device) + 20, view)
    return torch.cat((first, second)), *cache.page_tensors


@torch.inference_mode()
def test_other_views_run_plainly() -> None:
    """A cache that is no pages, pages of codes, a sequence with gaps, a model that cannot be fused."""
    model = tiny_model(tiny_config(L=1))
    holes = PagedCache(model.config, n_pages=8, page_size=4)
    seq = holes.add()
    with holes.step({seq: 6}) as view:
        model.hidden(torch.arange(6), view)
    holes.keep(seq, [0, 1, 4, 5])
    contiguous, coded = StaticCache(model.config, max_length=9), PagedQuantizedCache(model.config, format=KVFormat.int8(group=8), n_pages=4)
    odd = tiny_model(tiny_config(L=1, qkv_bias=True))
    plain = PagedCache(odd.config, n_pages=8, page_size=4)
    for which, cache, number in ((model, holes, seq), (model, contiguous, None), (model, coded, None), (odd, plain, None)):
        twin = copy.deepcopy(cache)
        outs = []
        for one, run in ((cache, partial(hidden_over_pages, fused=True)), (twin, Transformer.hidden)):
            with one.step({one.add() if number is None else number: 2}) as view:
                outs.append(run(which, torch.tensor([1, 2]), view))
        assert torch.equal(*outs)


@pytest.mark.skipif(launch.missing() is not None, reason="kernels are planned here, and Triton does not exist on this system")
@torch.inference_mode()
def test_nine_launches_a_layer() -> None:
    counts = []
    for layers in (2, 3):
        config = tiny_config(D=16, L=layers)
        with torch.device("meta"):
            model = Transformer(config).eval().to(torch.bfloat16)
            pages = [torch.empty(8, 4, config.K, config.D, dtype=torch.bfloat16) for _ in range(2 * layers)]
            numbers = (torch.empty(3, dtype=torch.int64) for _ in range(3))
            layout = PagedLayout(torch.empty(3, 2, dtype=torch.int32), torch.empty(3, 3, dtype=torch.int64))
            with launches() as found:
                fused_decode(model, pages[:layers], pages[layers:], *numbers, layout)
        counts.append(Counter(one.name for one in found))
    assert sum((counts[1] - counts[0]).values()) == 9
    assert (counts[1] - counts[0])["linear"] == 4


@torch.inference_mode()
def test_other_models_are_refused_by_what_they_have() -> None:
    cache_arguments = ([], [], torch.zeros(1, dtype=torch.int64), *[torch.zeros(1, dtype=torch.int64)] * 2, PagedLayout.of([[0]], [(0, 1, 0)]))
    with pytest.raises(ConfigError, match="biases"):
        fused_decode(tiny_model(tiny_config(qkv_bias=True)), *cache_arguments)
    assert fusable(tiny_model()) and not fusable(tiny_model(tiny_config(mlp_bias=True)))
    with pytest.raises(ConfigError, match="windows"):
        fused_decode(tiny_model(tiny_config(sliding_window=4)), *cache_arguments)
