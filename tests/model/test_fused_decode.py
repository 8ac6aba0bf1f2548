"""A fused step gives the model's own outputs, over any cache, and launches nine kernels a layer over plain pages."""

import copy
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch

from kvedu.caches.concat import ConcatCache
from kvedu.caches.formats import integer
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.latent import LatentCache
from kvedu.caches.paged import PagedCache
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.static import StaticCache
from kvedu.errors import ConfigError
from kvedu.config_experts import ExpertsConfig
from kvedu.kernels import launch, paged_attention, quantized_pages, rmsnorm, rope_write, swiglu
from kvedu.kernels.launches import launches
from kvedu.kernels.paged_attention import PagedLayout
from kvedu.model.fused_decode import fused_decode, fuses
from kvedu.model.transformer import Transformer
from tiny import tiny_config, tiny_model, with_latents, with_sharing

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from scenes import DEVICE, DTYPES  # noqa: E402


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
SCENES = {
    "pages": ({}, None),
    "biases, norms of queries and keys": (dict(qkv_bias=True, out_bias=True, mlp_bias=True, qk_norm=True), None),
    "a window in one of two layers": (dict(sliding_window=4, windowed_layers=(True, False)), None),
    "int8": ({}, KVFormat.int8(group=16)),
    "codes with tails": ({}, KVFormat(integer(4, 4, "tokens"), integer(4, 16), 4)),
}


@pytest.mark.parametrize("kernels", [False, KERNELS])
@pytest.mark.parametrize("scene", SCENES)
@torch.inference_mode()
def test_any_step_is_the_models_own(scene, kernels, monkeypatch) -> None:
    """Prompts, a chunk on a forked page, a single token and a tree in one step; by the kernels too, on a GPU or in the interpreter."""
    changes, format = SCENES[scene]
    model = tiny_model(tiny_config(H=6, K=2, D=16, L=2, **changes))
    device = DEVICE if kernels else "cpu"
    plain = two_steps(model, "cpu", format, fused=False)
    if kernels and device == "cpu":
        for module in (paged_attention, quantized_pages, rmsnorm, rope_write, swiglu):
            monkeypatch.setattr(module, "triton_wanted", lambda *asked: True)
    fused = two_steps(model.to(device), device, format, fused=True)
    for wanted, got in zip(plain, fused):
        assert torch.allclose(wanted, got.cpu(), atol=1e-4)


@pytest.mark.skipif(DEVICE == "cpu", reason="models are in half precision on a GPU only")
@pytest.mark.parametrize("scene", [scene for scene, (_, format) in SCENES.items() if format is None])
@torch.inference_mode()
def test_in_half_precision_it_is_as_near_to_the_truth(scene) -> None:
    """On a GPU: against fp32 off by at most twice as much as the model's own blocks are."""
    half = [dtype for dtype in DTYPES if dtype != torch.float32][-1]
    model = tiny_model(tiny_config(H=6, K=2, D=16, L=2, **SCENES[scene][0]))
    exact = two_steps(model, "cpu", None, fused=False)
    model = model.to(DEVICE, half)
    plain, fused = (two_steps(model, DEVICE, None, fused=fused) for fused in (False, True))
    for wanted, own, got in zip(exact, plain, fused):
        off, allowed = ((x.float().cpu() - wanted).abs().max() for x in (got, own))
        assert off <= 2 * allowed


def two_steps(model, device, format, fused):
    """The last block's and the first one's outputs in two steps of several sequences, and what is in the pages after them, as numbers."""
    kind = PagedCache if format is None else partial(PagedQuantizedCache, format=format)
    cache = kind(model.config, n_pages=24, page_size=4, device=device, dtype=model.dtype)
    a, b = cache.add(), cache.add()
    with cache.step({a: 6, b: 3}) as view:
        first = torch.cat(model.tapped(torch.arange(9, device=device) + 1, view, (1,), fused=fused), dim=-1)
        assert view.appended == set(range(model.config.L))
    c = cache.fork(a)
    with cache.step({a: 1, c: 5, b: 4}, {b: [-1, 0, 0, 1]}) as view:
        second = torch.cat(model.tapped(torch.arange(10, device=device) + 20, view, (1, 2), fused=fused), dim=-1)
    held = [x for seq in (a, b, c) for layer in range(cache.n_layers) for x in cache._read(layer, seq, cache.length(seq))]
    return first.flatten(), second.flatten(), *held


@torch.inference_mode()
def test_over_any_cache_and_by_blocks_of_any_make() -> None:
    """A cache that is no pages, a sequence with gaps, latents, experts, keys of another layer: what cannot be fused runs as it is."""
    holes = PagedCache(tiny_config(), n_pages=8, page_size=4)
    seq = holes.add()
    with holes.step({seq: 6}) as view:
        tiny_model().hidden(torch.arange(6), view)
    holes.keep(seq, [0, 1, 4, 5])
    latent, shared = with_latents(tiny_config(n_kv_heads=4)), with_sharing(tiny_config())
    experts = tiny_config(experts=ExpertsConfig(count=4, chosen=2, width=8, shared=1, first=1))
    caches = (holes, seq), (StaticCache(holes.config, max_length=9), None), (LatentCache(latent), None), (ConcatCache(shared), None), (ConcatCache(experts), None)
    for cache, number in caches:
        twin, model, outs = copy.deepcopy(cache), tiny_model(cache.config), []
        for one, fused in ((cache, True), (twin, False)):
            with one.step({one.add() if number is None else number: 2}) as view:
                outs.append(model.hidden(torch.tensor([1, 2]), view, fused=fused))
        torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["", "attn", "attn.qkv", "attn.out", "mlp", "mlp.gate_up", "attn_norm", "mlp_norm", "mlp.down"])
@torch.inference_mode()
def test_a_hook_sees_what_it_would(part) -> None:
    """Labs watch blocks and their parts: fused or not, a hook is called."""
    model = tiny_model()
    seen = []
    model.layers[1].get_submodule(part).register_forward_hook(lambda module, given, out: seen.append(out))
    for fused in (False, True):
        cache = ConcatCache(model.config)
        with cache.step({cache.add(): 3}) as view:
            model.hidden(torch.tensor([1, 2, 3]), view, fused=fused)
    assert len(seen) == 2
    torch.testing.assert_close(*seen)


OWN = {
    "rotate": lambda base: lambda self, q_NHD, k_NKD: (q_NHD, k_NKD),
    "append": lambda base: lambda self, layer, k_NKD, v_NKD: base.append(self, layer, k_NKD, 0 * v_NKD),
    "attend": lambda base: lambda self, layer, q_NHD: 0 * q_NHD,
}


@pytest.mark.parametrize("kind, settings", [(PagedCache, {}), (PagedQuantizedCache, {"format": KVFormat.int8(group=16)})], ids=["pages", "codes"])
@pytest.mark.parametrize("method", OWN)
@torch.inference_mode()
def test_a_view_of_ones_own_is_asked(method, kind, settings) -> None:
    """Who changes how a view rotates, appends or attends sees the change, fused or not."""
    model, outs = tiny_model(tiny_config(D=16)), []
    for fused, changed in ((False, True), (True, True), (True, False)):
        cache = kind(model.config, n_pages=4, page_size=4, **settings)
        if changed:
            cache.view = type("Own", (kind.view,), {method: OWN[method](kind.view)})
        with cache.step({cache.add(): 5}) as view:
            outs.append(model.hidden(torch.arange(5), view, fused=fused))
    torch.testing.assert_close(outs[0], outs[1])
    assert not torch.allclose(outs[1], outs[2], atol=1e-2)


def test_where_gradients_are_wanted_nothing_is_fused(monkeypatch) -> None:
    monkeypatch.setattr(launch, "runs_on", lambda device: True)
    with torch.device("meta"):
        model = Transformer(tiny_config())
    assert not fuses(model) and fuses(model, True) and not fuses(tiny_model())
    with torch.no_grad():
        assert fuses(model) and not fuses(model, False) and not fuses(tiny_model()), "on a CPU packed weights are faster"


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
    for config, name in ((tiny_config(sliding_window=4), "windows"), (with_latents(tiny_config(n_kv_heads=4)), "latents")):
        with pytest.raises(ConfigError, match=f"{name}.*with a view"):
            fused_decode(tiny_model(config), *cache_arguments)
