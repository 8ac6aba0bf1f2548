"""Multi-head latent attention: transformers' own numbers, absorbed and written out alike, and what the cache then holds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token, kv_cache_bytes, parameter_count
from kvedu.caches.concat import ConcatCache
from kvedu.caches.latent import LatentCache
from kvedu.caches.none import NoCache
from kvedu.caches.quantized import QuantizedCache
from kvedu.caches.static import StaticCache
from kvedu.config import ModelConfig
from kvedu.config_hf import config_from_hf
from kvedu.config_json import config_from_json, config_to_json
from kvedu.config_latent import LatentConfig
from kvedu.errors import CacheError, ConfigError, LoadError
from kvedu.model.generate import generate
from kvedu.model.load import build, load
from kvedu.model.loops import greedy_cached, greedy_uncached
from kvedu.model.transformer import Transformer
from kvedu.rope_config import RopeConfig
from tiny import random_ids, tiny_config, tiny_model, with_latents
from tiny_checkpoints import LATENT_MAKERS, make_deepseek_v2, make_deepseek_v3, make_llama

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}
ROPES = {
    "default": None,
    "yarn": YARN,
    "yarn, mscale_all_dim": YARN | {"mscale_all_dim": 1.0},
    "yarn, both": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
    "yarn, unequal": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 16.0, "beta_slow": 2.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
}


def logits(model, ids, cache, chunks=None):
    """Logits of a text, in one step or in chunks of these sizes."""
    seq, outs, start = cache.add(), [], 0
    for count in chunks or [len(ids)]:
        with torch.inference_mode(), cache.step({seq: count}) as view:
            outs.append(model(torch.tensor(ids[start : start + count]), view))
        start += count
    return torch.cat(outs)


def written_out(model: Transformer) -> Transformer:
    """The same weights, computed the other way."""
    return build(model.config.with_absorbed(False), {n: p.detach() for n, p in model.named_parameters()})


def assert_equal_to(theirs, model, n=30, **tolerance):
    ids = random_ids(n, V=model.config.V)
    with torch.inference_mode():
        wanted = theirs(torch.tensor([ids])).logits[0]
    for made, cache in ((model, LatentCache), (written_out(model), ConcatCache)):
        for chunks in (None, [n - 9, 3, 1, 1, 4]):
            torch.testing.assert_close(logits(made, ids, cache(made.config), chunks), wanted, **tolerance)


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
@pytest.mark.parametrize("family", LATENT_MAKERS)
def test_logits_equal_transformers(tmp_path, family, rope):
    """C059: pairs side by side, YaRN's two mscales (in cos and sin, and squared in the scale), cached and not."""
    changes = {} if rope is None else {"rope_parameters": rope}
    folder, theirs = LATENT_MAKERS[family](tmp_path, **changes)
    assert_equal_to(theirs, load(folder, device="cpu"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family, changes", [
    ("deepseek_v2", {"q_lora_rank": None}), ("deepseek_v3", {"q_lora_rank": None}),
    ("deepseek_v2", {"attention_bias": True, "mlp_bias": True}), ("deepseek_v3", {"attention_bias": True}),
    ("deepseek_v3", {"rope_interleave": False}), ("deepseek_v3", {"rope_interleave": False, "rope_parameters": YARN}),
    ("deepseek_v2", {"tie_word_embeddings": True}), ("deepseek_v3", {"v_head_dim": 11, "qk_nope_head_dim": 3}),
    ("deepseek_v3", {"rms_norm_eps": 0.1}), ("deepseek_v2", {"num_attention_heads": 1, "num_key_value_heads": 1}),
], ids=str)  # fmt: skip
def test_every_switch_of_the_layout(tmp_path, family, changes):
    """C029: queries without a latent, biases where the files have them, halves, a head of one; norms of latents keep their own epsilon."""
    folder, theirs = LATENT_MAKERS[family](tmp_path, **changes)
    model = load(folder, device="cpu")
    assert_equal_to(theirs, model, rtol=1e-4, atol=1e-4)
    assert parameter_count(model.config) == sum(p.numel() for p in model.parameters()) == theirs.num_parameters()


def test_the_layout_of_pairs_matters(tmp_path):
    """Read as halves, a checkpoint of neighbors loads without an error and says something else: the trap, and that we would see it."""
    folder, theirs = make_deepseek_v3(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_interleave": False}))
    ids = random_ids(20, V=96)
    wrong, right = logits(load(folder, device="cpu"), ids, NoCache(load(folder).config)), theirs(torch.tensor([ids])).logits[0]
    assert (wrong - right).abs().max() > 0.05


@settings(deadline=None, max_examples=25)
@given(
    H=st.integers(1, 5), width=st.integers(1, 17), rope=st.sampled_from([2, 4, 6]), nope=st.integers(1, 9), value=st.integers(1, 9),
    query=st.one_of(st.none(), st.integers(1, 9)), seed=st.integers(0, 9),
)
def test_absorbed_equals_written_out(H, width, rope, nope, value, query, seed):
    """The law of MLA: the same weights give the same logits over latents and over every head's keys, in double precision."""
    widths = dict(width=width, rope_width=rope, nope_width=nope, value_width=value, query_width=query)
    model = tiny_model(with_latents(tiny_config(H=H, K=1), **widths), seed=seed).double()
    ids, outs = random_ids(14, seed=seed), []
    for made, cache in ((model, LatentCache), (written_out(model), ConcatCache)):
        for chunks in (None, [5, 1, 4, 1, 3]):
            outs.append(logits(made, ids, cache(made.config, dtype=torch.float64), chunks))
    for got in outs[1:]:
        torch.testing.assert_close(got, outs[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("absorbed", [True, False])
def test_what_a_token_leaves_behind(absorbed):
    """C038: latent and rotated part once a token and layer; written out, keys and values of every head, in their two widths."""
    config = with_latents(tiny_config(H=4), absorbed=absorbed)
    elements = 12 + 4 if absorbed else 4 * (10 + 5)
    cache = (LatentCache if absorbed else ConcatCache)(config, dtype=torch.bfloat16)
    logits(tiny_model(config).bfloat16(), random_ids(9), cache, [4, 5])
    assert cache.nbytes == kv_cache_bytes(config, 9) == 9 * config.L * elements * 2


def test_deepseek_v3_is_70272_bytes_a_token():
    """C038: 61 x (512 + 64) x 2 bytes, in a cache that holds them; twice the latent alone would be 124,928."""
    latent = LatentConfig(width=512, rope_width=64, nope_width=128, value_width=128, query_width=1536)
    config = ModelConfig(
        n_layers=61, width=7168, n_heads=128, n_kv_heads=1, head_dim=576, mlp_width=18_432, vocab_size=129_280,
        max_positions=163_840, rope=RopeConfig(64), family="deepseek_v3", latent=latent,
    )  # fmt: skip
    assert config.attention_kind == "MLA" and config.Dv == 512
    cache = LatentCache(config, dtype=torch.bfloat16)
    seq = cache.add()
    with cache.step({seq: 3}) as view:
        for layer in range(61):
            k_NKD = torch.zeros(3, 1, 576)
            view.append(layer, k_NKD, k_NKD[..., 64:])
    assert cache.nbytes == 3 * kv_bytes_per_token(config) == 3 * 70_272
    assert kv_bytes_per_token(config) == kv_bytes_per_token(known_model("DeepSeek-V3").shape)
    assert kv_bytes_per_token(config.with_absorbed(False)) == 61 * 128 * (192 + 128) * 2


def test_greedy_tokens_and_training(tmp_path):
    """From a loaded checkpoint: cached = uncached, packed = plain, and gradients reach every weight."""
    folder, theirs = make_deepseek_v3(tmp_path, rope_parameters=YARN)
    model = load(folder, device="cpu")
    prompt = random_ids(9, V=96)
    wanted = greedy_uncached(model, prompt, 20)
    assert len(set(wanted)) > 3 and greedy_cached(model, prompt, 20, LatentCache(model.config)) == wanted
    cache = NoCache(model.config)
    with cache.step({cache.add(): 9}) as view:
        model(torch.tensor(prompt), view).logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    for made in (model, written_out(model)):  # a cache that fits is found
        assert list(generate(made, prompt, max_new_tokens=20, ignore_eos=True).token_ids) == wanted
    assert greedy_uncached(model.pack(), prompt, 20) == wanted


@pytest.mark.parametrize("maker, changes, message", [
    (make_deepseek_v2, {"rope_interleave": False}, "rope_interleave is false in a deepseek_v2"),
    (make_deepseek_v3, {"qk_rope_head_dim": 3}, "rope_width must be even, not 3"),
    (make_deepseek_v3, {"kv_lora_rank": 0}, "latent's width must be at least 1, not 0"),
])  # fmt: skip
def test_a_config_that_is_refused(tmp_path, maker, changes, message):
    """By the key in the way."""
    folder, _ = maker(tmp_path)
    raw = json.loads((folder / "config.json").read_text())
    with pytest.raises(ConfigError, match=message):
        config_from_hf(raw | changes)


def test_a_file_that_does_not_fit(tmp_path):
    folder, _ = make_deepseek_v3(tmp_path / "v3")
    raw = json.loads((folder / "config.json").read_text())
    for changes, message in [
        ({"kv_lora_rank": 13}, r"kv_a_\w+.* has shape"), ({"q_lora_rank": None}, r"lacks model\.layers\.0\.self_attn\.q_proj"),
        ({"v_head_dim": 6}, "o_proj|kv_b_proj"), ({"model_type": "llama"}, "lacks .*k_proj|RoPE keys not understood"),
    ]:  # fmt: skip
        (folder / "config.json").write_text(json.dumps(raw | changes))
        with pytest.raises((LoadError, ConfigError), match=message):
            load(folder)


def test_caches_and_configs_that_do_not_fit():
    config = with_latents(tiny_config())
    for kind, changes in ((StaticCache, {"max_length": 8}), (QuantizedCache.kivi, {})):
        with pytest.raises(CacheError, match="keys have 16 elements, its values 12; use LatentCache"):
            kind(config, **changes)
    with pytest.raises(CacheError, match="written out: it caches keys and values of every head"):
        LatentCache(config.with_absorbed(False))
    with pytest.raises(CacheError, match="this is GQA; use ConcatCache"):
        LatentCache(tiny_config())
    for changes, message in [
        ({"head_dim": 15}, "finds 1 KV heads of 16 elements.*head_dim 15"), ({"n_kv_heads": 2}, "n_kv_heads is 2"),
        ({"rope": RopeConfig(dim=6)}, "RoPE rotates 6 elements, the latent's rope_width is 4"), ({"qk_norm": True}, "qk_norm"),
        ({"kv_source": (0, 0)}, "does not do with latents"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            replace(config, **changes)
    with pytest.raises(ConfigError, match="a GQA model has no latents"):
        tiny_config().with_absorbed(True)


def test_the_config_survives_json():
    config = with_latents(tiny_config(), query_width=None)
    assert config_from_json(config_to_json(config)) == config
    assert config_from_json(config_to_json(tiny_config())).latent is None


def test_other_families_are_read_as_before(tmp_path):
    folder, _ = make_llama(tmp_path)
    raw = json.loads((folder / "config.json").read_text())
    with pytest.raises(ConfigError, match="rope_interleave"):
        config_from_hf(raw | {"rope_interleave": True})
