"""Configurations: from Hugging Face and GGUF, as JSON, and refused when they contradict themselves."""

from dataclasses import replace

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from kvedu.config import ModelConfig
from kvedu.config_gguf import config_from_gguf
from kvedu.config_hf import config_from_hf, id_tuple, with_generation_config
from kvedu.config_json import config_from_json, config_to_json
from kvedu.errors import ConfigError
from kvedu.rope_config import RopeConfig

LLAMA = dict(model_type="llama", num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=48,
             vocab_size=96)
GGUF = {
    "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 32, "llama.context_length": 64,
    "llama.feed_forward_length": 48, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 9.999999747378752e-06, "llama.rope.freq_base": 5e5, "llama.vocab_size": 96,
    "tokenizer.ggml.eos_token_id": 2,
}


def hf(**changes):
    return config_from_hf(LLAMA | changes)


def from_gguf(**changes):
    made = {key: value for key, value in (GGUF | changes).items() if value is not None}
    return config_from_gguf(made, tied=False)


def test_missing_and_null_kv_heads_mean_mha():
    assert hf().n_kv_heads == hf(num_key_value_heads=None).n_kv_heads == 4
    assert hf().attention_kind == "MHA"
    assert (hf(num_key_value_heads=1).attention_kind, hf(num_key_value_heads=2).attention_kind) == ("MQA", "GQA")


def test_head_dim_is_given_or_derived():
    """C033: Qwen3-4B has heads of 128 over width 2,560, not 2,560 / 32 = 80."""
    assert (hf().D, hf(head_dim=None).D, hf(head_dim=16).D) == (8, 8, 16)
    qwen3_4b = hf(model_type="qwen3", hidden_size=2560, num_attention_heads=32, num_key_value_heads=8, head_dim=128)
    assert (qwen3_4b.D, qwen3_4b.qk_norm) == (128, True)
    with pytest.raises(ConfigError, match="head_dim is not given"):
        hf(hidden_size=34)


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
def test_a_missing_key_is_named(key):
    with pytest.raises(ConfigError, match=key):
        config_from_hf({k: v for k, v in LLAMA.items() if k != key})


@pytest.mark.parametrize("kind", ["gpt2", "gemma2", "mixtral", None])
def test_an_unknown_architecture_is_named(kind):
    with pytest.raises(ConfigError, match=f"{kind}.*llama"):
        hf(model_type=kind)


@pytest.mark.parametrize("change", [
    {"hidden_act": "gelu"}, {"quantization_config": {"quant_method": "gptq"}}, {"attn_logit_softcapping": 50.0},
    {"embedding_multiplier": 12.0}, {"clip_qkv": 8.0},
])
def test_a_setting_that_would_change_the_maths_is_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        hf(**change)
    assert hf(**{key: None for key in change}) == hf()


def test_biases_follow_each_family_as_in_transformers():
    flags = ("qkv_bias", "out_bias", "mlp_bias")
    for family, set_, wanted in [
        ("llama", {}, (False,) * 3), ("llama", {"attention_bias": True, "mlp_bias": True}, (True,) * 3),
        ("qwen2", {}, (True, False, False)), ("qwen3", {"attention_bias": True}, (True, True, False)),
        ("mistral", {"attention_bias": True, "mlp_bias": True}, (False,) * 3),
    ]:
        config = hf(model_type=family, **set_)
        assert tuple(getattr(config, flag) for flag in flags) == wanted, family


def test_windows_follow_each_family_as_in_transformers():
    assert hf(sliding_window=8).sliding_window is None  # Llama has none
    mistral = hf(model_type="mistral", sliding_window=8)
    assert [mistral.window(i) for i in range(2)] == [8, 8]
    assert hf(model_type="mistral", sliding_window=None).window(0) is None
    assert hf(model_type="mistral").window(0) == transformers.MistralConfig().sliding_window
    assert hf(model_type="qwen2", sliding_window=8).window(1) is None
    qwen = hf(model_type="qwen2", sliding_window=8, use_sliding_window=True, max_window_layers=1)
    assert [qwen.window(i) for i in range(2)] == [None, 8]
    kinds = ["sliding_attention", "full_attention"]
    assert hf(model_type="qwen3", sliding_window=8, use_sliding_window=True, layer_types=kinds).window(0) == 8
    with pytest.raises(ConfigError, match="chunked_attention"):
        hf(model_type="qwen2", sliding_window=8, use_sliding_window=True, layer_types=["chunked_attention"] * 2)


@pytest.mark.parametrize("family, cls", [
    ("llama", transformers.LlamaConfig), ("mistral", transformers.MistralConfig), ("qwen2", transformers.Qwen2Config),
    ("qwen3", transformers.Qwen3Config),
])
def test_missing_keys_get_transformers_defaults(family, cls):
    theirs = cls(num_attention_heads=4, num_key_value_heads=4, hidden_size=32, num_hidden_layers=2)
    ours = hf(model_type=family)
    assert ours.max_positions == theirs.max_position_embeddings
    assert ours.norm_eps == theirs.rms_norm_eps
    assert ours.tied == theirs.tie_word_embeddings
    assert ours.rope.theta == theirs.rope_parameters["rope_theta"]
    assert ours.head_dim == getattr(theirs, "head_dim", 8)


def test_eos_is_an_int_or_a_list():
    """C030: both spellings in both files."""
    assert hf(eos_token_id=2).eos_ids == (2,) and hf(eos_token_id=[2, 7, 2]).eos_ids == (2, 7) and hf().eos_ids == ()
    assert with_generation_config(hf(eos_token_id=2), {"eos_token_id": [2, 7]}).eos_ids == (2, 7)
    assert with_generation_config(hf(eos_token_id=[2, 7]), {}).eos_ids == (2, 7)
    assert id_tuple(0) == (0,)
    for wrong in ("2", True, [2, None], 2.0):
        with pytest.raises(ConfigError, match="token id"):
            id_tuple(wrong)


@pytest.mark.parametrize("field, value, part", [
    ("n_heads", 3, "must divide"), ("n_kv_heads", 3, "must divide"), ("n_layers", 0, "n_layers"),
    ("width", True, "width"), ("head_dim", 8.0, "head_dim"), ("family", "bert", "bert"),
    ("rope", RopeConfig(dim=16), "16 of only 8"), ("sliding_window", -1, "sliding_window"),
    ("windowed_layers", (True,), "1 entries for 2"),
])
def test_numbers_that_contradict_each_other(field, value, part):
    with pytest.raises(ConfigError, match=part):
        replace(hf(num_key_value_heads=2), **{field: value})


def test_letters_and_with_kv_heads():
    config = hf(num_key_value_heads=2)
    assert (config.L, config.M, config.H, config.K, config.G, config.D, config.F, config.V) == (2, 32, 4, 2, 2, 8, 48, 96)
    assert config.H == config.K * config.G
    assert config.with_kv_heads(1).attention_kind == "MQA"


def test_gguf_metadata():
    config = from_gguf()
    assert (config.L, config.M, config.H, config.K, config.D, config.F, config.V) == (2, 32, 4, 2, 8, 48, 96)
    assert (config.norm_eps, config.rope.theta, config.max_positions, config.eos_ids) == (1e-5, 5e5, 64, (2,))
    assert from_gguf(**{"llama.attention.head_count_kv": None}).attention_kind == "MHA"
    assert from_gguf(**{"llama.attention.key_length": 16, "llama.attention.value_length": 16}).head_dim == 16
    tokens = {"llama.vocab_size": None, "tokenizer.ggml.tokens": ["a"] * 7}
    assert from_gguf(**tokens).vocab_size == 7


def test_gguf_end_of_turn_ends_a_text_too():
    """C030: chat files name the end of a turn apart from the end of a text."""
    assert from_gguf(**{"tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 2}).eos_ids == (2, 9)


@pytest.mark.parametrize("key, value", [
    ("general.architecture", "gemma"), ("general.architecture", None), ("llama.block_count", None),
    ("llama.attention.value_length", 4), ("llama.attention.head_count", [4, 2]), ("llama.expert_count", 8),
    ("llama.attention.sliding_window", 8), ("llama.rope.scaling.yarn_log_multiplier", 0.1),
    ("llama.rope.scaling.type", "longrope"), ("llama.rope.dimension_count", 4), ("llama.logit_scale", 2.0),
])
def test_gguf_keys_that_are_missing_or_not_understood(key, value):
    """C058: an unread key, RoPE or not, is reported by name."""
    with pytest.raises(ConfigError, match=key.removeprefix("llama.")):
        from_gguf(**{key: value})


def test_gguf_keys_that_say_nothing_are_fine():
    assert from_gguf(**{"llama.expert_count": 0, "llama.rope.scaling.type": "none", "general.file_type": 3}) == from_gguf()


def test_gguf_rope_scalings():
    linear = from_gguf(**{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}).rope
    assert (linear.kind, linear.factor) == ("linear", 4.0)
    assert from_gguf(**{"llama.rope.scale_linear": 4.0}).rope == linear
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 16}
    rope = from_gguf(**yarn).rope
    assert (rope.kind, rope.original_max_positions, rope.attention_factor) == ("yarn", 16, None)
    rope = from_gguf(**yarn | {"llama.rope.scaling.attn_factor": 1.0}).rope
    assert rope.attention_factor == pytest.approx(1.138629)  # 1 + 0.1 ln 4: a neutral factor changes nothing


CONFIGS = st.builds(
    lambda groups, kv, half, **rest: ModelConfig(
        n_heads=groups * kv, n_kv_heads=kv, head_dim=2 * half, rope=RopeConfig(dim=2 * half, theta=rest.pop("theta")), **rest
    ),
    groups=st.integers(1, 5), kv=st.integers(1, 5), half=st.integers(1, 9), theta=st.floats(1, 1e7),
    n_layers=st.integers(1, 9), width=st.integers(1, 99), mlp_width=st.integers(1, 99), vocab_size=st.integers(1, 99),
    max_positions=st.integers(1, 99), norm_eps=st.floats(1e-8, 1e-3), tied=st.booleans(), qk_norm=st.booleans(),
    sliding_window=st.none() | st.integers(0, 9), bos_id=st.none() | st.integers(0, 9),
    eos_ids=st.lists(st.integers(0, 9)).map(tuple),
)


@given(CONFIGS)
def test_json_and_back(config):
    assert config_from_json(config_to_json(config)) == config


def test_json_keeps_tuples():
    rope = RopeConfig(dim=4, kind="longrope", short_factor=(1.0, 2.0), long_factor=(3.0, 4.0))
    config = replace(hf(), rope=rope, windowed_layers=(True, False), sliding_window=4)
    assert config_from_json(config_to_json(config)) == config


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"rope": {}}', '{"rope": 3}', '{"rope": {"dim": 3}}'])
def test_json_that_is_no_config(text):
    with pytest.raises(ConfigError):
        config_from_json(text)
