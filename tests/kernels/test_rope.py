"""RoPE: the rotation, every scaling against published numbers and transformers, and the faults that others had."""

import math
from dataclasses import replace

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from kvedu.config_hf import config_from_hf
from kvedu.kernels.rope import cos_sin, inverse_frequencies, rotate, rotate_reference
from kvedu.rope_config import RopeConfig, rope_from_hf
from rope_scalings import SCALINGS



def rope_of(kind, head_dim=8, max_positions=64, theta=10_000.0):
    raw = {"rope_theta": theta, "rope_scaling": SCALINGS[kind] or None}
    return rope_from_hf(raw, head_dim, max_positions)


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("length", [4, 16, 17, 64, 65, 200])
def test_frequencies_equal_transformers(kind, length):
    """Every scaling, on both sides of its switch, by transformers' own functions."""
    rope = rope_of(kind)
    hf = transformers.LlamaConfig(
        hidden_size=32, num_attention_heads=4, head_dim=8, max_position_embeddings=64,
        rope_parameters={"rope_theta": 10_000.0, "rope_type": "default"} | SCALINGS[kind],
    )
    if kind == "default":
        wanted, magnitude = 1 / 10_000 ** (torch.arange(0, 8, 2) / 8), 1.0
    else:
        wanted, magnitude = ROPE_INIT_FUNCTIONS[kind](hf, "cpu", seq_len=length)
    got, got_magnitude = inverse_frequencies(rope, length)
    torch.testing.assert_close(got, wanted.float(), rtol=1e-6, atol=0)
    assert got_magnitude == pytest.approx(magnitude, rel=1e-6)


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("partial", [1.0, 0.5])
def test_rotate_equals_the_definition(kind, partial):
    rope = rope_of(kind) if partial == 1.0 else replace(rope_of("default"), dim=4)
    x_NHD = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 1, 7, 30, 63])
    got = rotate(x_NHD, *cos_sin(rope, positions, torch.float32, length=64))
    torch.testing.assert_close(got, rotate_reference(x_NHD, positions, rope, length=64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", SCALINGS)
def test_scores_depend_on_distance_only(kind):
    """The property that keeps cached keys valid: q at p+s and k at p meet as q at s and k at 0 do."""
    rope, (q, k) = rope_of(kind), torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(1))

    def score(p_q, p_k):
        at = lambda p: cos_sin(rope, torch.tensor([p]), torch.float32, length=40)
        return float((rotate(q, *at(p_q)) * rotate(k, *at(p_k))).sum())

    for shift in (1, 9, 31):
        assert score(5 + shift, shift) == pytest.approx(score(5, 0), abs=1e-4)


def test_llama3_numbers():
    """C057: llama3 scaling read under both key spellings, with the published numbers; an unknown type raises."""
    block = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    plain = inverse_frequencies(RopeConfig(dim=64, theta=5e5))[0]
    for key in ("rope_type", "type"):
        rope = rope_from_hf({"rope_theta": 5e5, "rope_scaling": {key: "llama3"} | block}, 64, 131_072)
        got = inverse_frequencies(rope)[0]
        torch.testing.assert_close(got[:15], plain[:15])
        torch.testing.assert_close(got[15:18], torch.tensor([1.29055e-3, 4.29557e-4, 9.70829e-5]), rtol=1e-5, atol=0)
        torch.testing.assert_close(got[18:], plain[18:] / 32)
    with pytest.raises(ValueError, match="'llama4' is unknown"):
        rope_from_hf({"rope_scaling": {"rope_type": "llama4"}}, 64, 8192)


@pytest.mark.parametrize(
    "raw, wanted",
    [({"rope_theta": 5e5}, 0.66360), ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, 0.66360), ({}, 0.74989)],
)
def test_theta_is_carried_over(raw, wanted):
    """C058: theta from a flat key or a rope_parameters block; a missing key means 10,000."""
    rope = rope_from_hf(raw, 64, 4096)
    assert float(inverse_frequencies(rope)[0][1]) == pytest.approx(wanted, abs=1e-5)


def test_an_unread_rope_key_is_reported():
    """C058: a RoPE key that nothing reads is an error that names it."""
    with pytest.raises(ValueError, match="mystery_factor"):
        rope_from_hf({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "mystery_factor": 3}}, 64, 4096)


@pytest.mark.parametrize(
    "block, wanted",
    [
        ({"factor": 64.0}, 1.415888),
        ({"factor": 64.0, "attention_factor": 1.0}, 1.0),
        ({"factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"factor": 1.0}, 1.0),
    ],
)
def test_yarn_magnitude(block, wanted):
    """C059: explicit factor taken as it is, mscale pairs cancel, factor 1 changes nothing."""
    raw = {"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 4096} | block}
    assert inverse_frequencies(rope_from_hf(raw, 64, 8192))[1] == pytest.approx(wanted, abs=1e-6)


def test_linear_scaling_divides_positions():
    """C059: with factor 4, position p turns by the angle of p / 4."""
    stretched = RopeConfig(dim=8, kind="linear", factor=4.0)
    torch.testing.assert_close(inverse_frequencies(stretched)[0] * 8, inverse_frequencies(RopeConfig(dim=8))[0] * 2)


def test_partial_rotation():
    """C060: head 16, factor 0.25: dims 4..15 bit-identical, inverse frequencies 1 and 0.01 (not over the full width)."""
    config = config_from_hf(
        dict(model_type="llama", num_hidden_layers=1, hidden_size=16, num_attention_heads=1, intermediate_size=8,
             vocab_size=8, partial_rotary_factor=0.25)
    )
    torch.testing.assert_close(inverse_frequencies(config.rope)[0], torch.tensor([1.0, 0.01]))
    x_NHD = torch.randn(1, 1, 16)
    out = rotate(x_NHD, *cos_sin(config.rope, torch.tensor([5]), torch.float32))
    assert torch.equal(out[..., 4:], x_NHD[..., 4:]) and not torch.equal(out[..., :4], x_NHD[..., :4])
    assert float(out[0, 0, 0]) == pytest.approx(float(x_NHD[0, 0, 0] * math.cos(5) - x_NHD[0, 0, 2] * math.sin(5)), abs=1e-5)


def test_tables_are_fp32_until_the_end():
    """C045: in bf16 the table is the fp32 one rounded; positions 256 and 257 differ."""
    rope, positions = RopeConfig(dim=32), torch.arange(2048)
    exact, rounded = (cos_sin(rope, positions, dtype)[0] for dtype in (torch.float32, torch.bfloat16))
    assert (exact - rounded.float()).abs().max() <= 0.004
    assert not torch.equal(rounded[256], rounded[257])
