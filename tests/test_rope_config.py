"""RoPE settings from config.json: both spellings, every kind, nothing unread. transformers is the judge."""

import math

import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvedu.config_hf import config_from_hf
from kvedu.errors import ConfigError
from kvedu.kernels.rope import inverse_frequencies
from kvedu.rope_config import KINDS, RopeConfig, rope_from_hf

LLAMA3 = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192)


def read(block=None, *, dim=64, length=2048, spelling="rope_parameters", **beside):
    return rope_from_hf(({spelling: block} if block is not None else {}) | beside, dim, length)


def test_theta_in_both_spellings_and_missing():
    """C058: second pair's inverse frequency 0.66360 for a base of 5e5; 0.74989 is what ignoring it gives."""
    for rope in (read(rope_theta=5e5), read({"rope_theta": 5e5, "rope_type": "default"}),
                 read({"rope_theta": 5e5}, spelling="rope_scaling")):
        assert inverse_frequencies(rope)[0][1].item() == pytest.approx(0.66360, abs=1e-5)
    assert read().theta == 10_000.0
    assert inverse_frequencies(read())[0][1].item() == pytest.approx(0.74989, abs=1e-5)


@pytest.mark.parametrize("name", ["rope_type", "type"])
@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
def test_llama3_in_every_spelling(name, spelling):
    """C057: pairs 0-14 unchanged, 15-17 between, 18-31 divided by 32; kind under either key."""
    block = {name if key == "rope_type" else key: value for key, value in LLAMA3.items()}
    rope = read(block, spelling=spelling, rope_theta=5e5, length=131_072)
    found = inverse_frequencies(rope)[0]
    plain = 5e5 ** (-torch.arange(0, 64, 2) / 64)
    assert torch.allclose(found[:15], plain[:15], rtol=1e-5, atol=0)
    assert found[15:18].tolist() == pytest.approx([1.29055e-3, 4.29557e-4, 9.70829e-5], rel=1e-4)
    assert torch.allclose(found[18:], plain[18:] / 32, rtol=1e-5, atol=0)


def test_yarn_magnitudes():
    """C059: plain, explicit factor, mscale pair, no extension."""
    def magnitude(**block):
        return inverse_frequencies(read({"rope_type": "yarn", "original_max_position_embeddings": 512} | block))[1]

    assert magnitude(factor=64.0) == pytest.approx(1.415888, abs=1e-6)
    assert magnitude(factor=64.0, attention_factor=1.0) == 1.0
    assert magnitude(factor=16.0, mscale=1.0, mscale_all_dim=1.0) == 1.0
    assert magnitude(factor=1.0) == 1.0


def test_partial_rotation():
    """C060: a quarter of 16 dimensions: two pairs at 1 and 0.01, not 1 and 0.316; inside or beside the block."""
    for rope in (read(dim=16, partial_rotary_factor=0.25),
                 read({"rope_type": "default", "partial_rotary_factor": 0.25}, dim=16)):
        assert rope.dim == 4
        assert inverse_frequencies(rope)[0].tolist() == pytest.approx([1.0, 0.01])


def test_a_null_factor_is_the_ratio_of_lengths():
    """As transformers computes it for YaRN and LongRoPE; the other kinds have no such rule."""
    assert read({"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 512}).factor == 4.0
    ones = {"short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
    assert read({"rope_type": "longrope"} | ones, original_max_position_embeddings=1024).factor == 2.0
    for kind in ("linear", "dynamic", "llama3"):
        with pytest.raises(ConfigError, match=f"{kind} RoPE needs a factor"):
            read({"rope_type": kind, "factor": None})


def test_the_original_length_beside_the_block_wins():
    """As Phi-3 stores it and transformers reads it; with none at all it is the whole length."""
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    assert read(block, original_max_position_embeddings=1024).original_max_positions == 1024
    assert read({"rope_type": "yarn", "factor": 4.0}).original_max_positions == 2048


@pytest.mark.parametrize("block, name", [
    ({"rope_type": "linear", "factor": 2.0, "mrope_section": [1]}, "mrope_section"),
    ({"rope_type": "linear", "factor": 2.0, "low_freq_factor": 1.0}, "low_freq_factor"),
    ({"rope_type": "default", "factor": 8.0}, "factor"),
    ({"factor": 8.0}, "factor"),
    (LLAMA3 | {"beta_fast": 32}, "beta_fast"),
    ({"rope_type": "yarn", "factor": 2.0, "finetuned": True}, "finetuned"),
    ({"rope_type": "su"}, "su"), ({"type": "mrope"}, "mrope"),
    ({"rope_type": "linear", "type": "dynamic", "factor": 2.0}, "disagree"),
    ({"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e6}}, "by layer type"),
    ({"rope_type": "llama3", "factor": 8.0}, "low_freq_factor"),
    ({"rope_type": "longrope", "short_factor": [1.0] * 32}, "long_factor"),
    ({"rope_type": "longrope", "short_factor": [1.0] * 31, "long_factor": [1.0] * 32}, "short_factor"),
    ({"rope_type": "linear", "factor": 0.0}, "positive"),
])
@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
def test_a_key_that_is_not_used_or_missing_is_named(block, name, spelling):
    """C057, C058: parsed and then ignored is how long prompts go wrong."""
    with pytest.raises(ConfigError, match=name):
        read(block, spelling=spelling)


@pytest.mark.parametrize("beside", [{"rope_interleaved": True}, {"rotary_pct": 0.25}, {"no_rope_layers": [0]},
                                    {"rope_local_base_freq": 1e4}])
def test_a_key_beside_the_block_is_named(beside):
    with pytest.raises(ConfigError, match=next(iter(beside))):
        read(**beside)


def test_neutral_keys_are_fine():
    """SmolLM2's own config says rope_interleaved false and rope_scaling null."""
    assert read(rope_interleaved=False, rope_scaling=None, rope_theta=1e5) == RopeConfig(dim=64, theta=1e5)
    assert read({"rope_type": "default", "factor": None}) == read()


def test_two_blocks_agree_or_are_refused():
    linear = {"rope_type": "linear", "factor": 2.0}
    both = {"rope_scaling": linear, "rope_parameters": linear | {"rope_theta": 5e5}}
    assert rope_from_hf(both, 64, 2048).theta == 5e5
    with pytest.raises(ConfigError, match="disagree"):
        rope_from_hf(both | {"rope_scaling": linear | {"factor": 4.0}}, 64, 2048)


def test_odd_and_empty_widths_are_refused():
    for dim, partial in ((15, 1.0), (16, 0.05), (16, 0.2)):
        with pytest.raises(ConfigError, match="pairs"):
            read(dim=dim, partial_rotary_factor=partial)


def test_switch_length():
    assert read({"rope_type": "dynamic", "factor": 2.0}).switch_length == 2048
    ones = {"short_factor": [1.0] * 32, "long_factor": [2.0] * 32, "rope_type": "longrope"}
    assert read(ones, original_max_position_embeddings=512).switch_length == 512
    assert [read(block).switch_length for block in (None, {"rope_type": "linear", "factor": 2.0})] == [None, None]


BLOCKS = st.fixed_dictionaries({
    "rope_type": st.sampled_from(KINDS), "rope_theta": st.sampled_from([1e3, 1e4, 1e5, 5e5]),
    "factor": st.floats(1.0, 64.0), "original_max_position_embeddings": st.sampled_from([64, 256, 1024]),
    "low_freq_factor": st.floats(0.5, 2.0), "high_freq_factor": st.floats(3.0, 8.0),
    "attention_factor": st.none() | st.floats(0.5, 2.0), "beta_fast": st.none() | st.floats(8.0, 64.0),
    "beta_slow": st.none() | st.floats(0.5, 4.0), "mscale": st.none() | st.floats(0.5, 2.0),
    "mscale_all_dim": st.none() | st.floats(0.5, 2.0), "truncate": st.booleans(),
    "short_factor": st.lists(st.floats(1, 4), min_size=8, max_size=8),
    "long_factor": st.lists(st.floats(1, 64), min_size=8, max_size=8),
})
USED = {
    "default": set(), "linear": {"factor"}, "dynamic": {"factor"},
    "llama3": {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"},
    "yarn": {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
             "mscale_all_dim", "truncate"},
    "longrope": {"factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"},
}


@settings(deadline=None, max_examples=150)
@given(block=BLOCKS, null_factor=st.booleans())
def test_frequencies_equal_transformers(block, null_factor):
    """C057-C060: the same numbers from the same config.json, for random settings of every kind."""
    kind = block["rope_type"]
    block = {key: value for key, value in block.items() if key in USED[kind] | {"rope_type", "rope_theta"}}
    if null_factor and kind in ("yarn", "longrope"):
        block["factor"] = None
    theirs_config = transformers.LlamaConfig(
        hidden_size=64, num_attention_heads=4, num_hidden_layers=1, intermediate_size=8, vocab_size=8,
        max_position_embeddings=2048, rope_parameters=dict(block),
    )
    theirs = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(theirs_config)
    ours = config_from_hf(theirs_config.to_dict()).rope
    inv_freq, magnitude = inverse_frequencies(ours)
    assume(math.isfinite(theirs.attention_scaling))
    assert torch.allclose(inv_freq, theirs.inv_freq, rtol=2e-5, atol=0)
    assert magnitude == pytest.approx(theirs.attention_scaling, rel=1e-6)
