"""The plan from checkpoint names to parameters: complete, strict both ways, tied heads right."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvedu.config import ModelConfig
from kvedu.config_hf import config_from_hf
from kvedu.errors import LoadError
from kvedu.model.transformer import Transformer
from kvedu.model.weights import EMBEDDING, HEAD, assemble, plan, state_shapes
from kvedu.rope_config import RopeConfig
from tiny_checkpoints import MAKERS, make_llama, make_qwen2


def checkpoint(made):
    """Config, tensors by name as saved, of a made folder."""
    folder, model = made
    config = config_from_hf(json.loads((folder / "config.json").read_text()))
    return config, {name: p.detach() for name, p in model.named_parameters()}


def assembled(config, tensors, dtype=torch.float32):
    return assemble(config, {n: tuple(t.shape) for n, t in tensors.items()}, tensors.__getitem__, dtype)


@pytest.fixture(scope="module")
def untied(tmp_path_factory):
    return checkpoint(make_llama(tmp_path_factory.mktemp("untied")))


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    return checkpoint(make_llama(tmp_path_factory.mktemp("tied"), tie_word_embeddings=True))


@pytest.mark.parametrize("family", MAKERS)
def test_every_value_lands_once(tmp_path, family):
    """C029: with the stacks taken apart again, each tensor of the file is there, bit for bit."""
    config, tensors = checkpoint(MAKERS[family](tmp_path))
    state = assembled(config, tensors)
    seen = set()
    for target, parts in plan(config).items():
        pieces = state[target].split([part.shape[0] for part in parts])
        for part, piece in zip(parts, pieces, strict=True):
            assert torch.equal(piece, tensors[part.name]), part.name
            seen.add(part.name)
    assert seen == tensors.keys()
    assert {n: tuple(t.shape) for n, t in state.items()} == state_shapes(config)


@settings(deadline=None, max_examples=40)
@given(
    layers=st.integers(1, 3), groups=st.integers(1, 3), kv_heads=st.integers(1, 3), head_dim=st.sampled_from([2, 4, 6]),
    width=st.integers(1, 9), mlp=st.integers(1, 9), vocab=st.integers(1, 9), flags=st.tuples(*[st.booleans()] * 5),
)
def test_the_plan_fills_the_model_exactly(layers, groups, kv_heads, head_dim, width, mlp, vocab, flags):
    """Same names and shapes as ``Transformer``'s own, for every shape and switch (MHA, MQA and GQA)."""
    names = ("tied", "qkv_bias", "out_bias", "mlp_bias", "qk_norm")
    config = ModelConfig(
        n_layers=layers, width=width, n_heads=groups * kv_heads, n_kv_heads=kv_heads, head_dim=head_dim, mlp_width=mlp,
        vocab_size=vocab, max_positions=8, rope=RopeConfig(dim=head_dim), **dict(zip(names, flags)),
    )
    with torch.device("meta"):
        wanted = {name: tuple(p.shape) for name, p in Transformer(config).named_parameters()}
    assert state_shapes(config) == wanted


def test_qwen3_4b_projections_follow_head_dim():
    """C033: 32 heads of 128 over width 2,560: Q is 4,096 x 2,560, not 2,560 x 2,560."""
    config = ModelConfig(
        n_layers=36, width=2560, n_heads=32, n_kv_heads=8, head_dim=128, mlp_width=9728, vocab_size=151_936,
        max_positions=40_960, rope=RopeConfig(dim=128, theta=1e6), family="qwen3", tied=True, qk_norm=True,
    )
    parts = {part.name: part.shape for parts in plan(config).values() for part in parts}
    assert parts["model.layers.35.self_attn.q_proj.weight"] == (4096, 2560)
    assert parts["model.layers.35.self_attn.k_proj.weight"] == (1024, 2560)
    assert parts["model.layers.35.self_attn.o_proj.weight"] == (2560, 4096)


def test_tied_and_absent_makes_no_head(tied):
    """C027 (a): the head is left to the model, which uses the embedding."""
    config, tensors = tied
    assert HEAD not in tensors and "head.weight" not in assembled(config, tensors)


def test_tied_and_equal_loads(tied):
    """C027 (b): files that hold the head although it is tied."""
    config, tensors = tied
    state = assembled(config, tensors | {HEAD: tensors[EMBEDDING].clone()})
    assert "head.weight" not in state and torch.equal(state["embed.weight"], tensors[EMBEDDING])


def test_tied_and_different_is_refused(tied):
    """C027: a config that says tied and a head that says otherwise; neither is dropped in silence."""
    config, tensors = tied
    other = tensors[EMBEDDING].clone()
    other[-1, -1] += 1e-3
    with pytest.raises(LoadError, match="lm_head.weight differs"):
        assembled(config, tensors | {HEAD: other})
    with pytest.raises(LoadError, match="lm_head.weight has shape"):
        assembled(config, tensors | {HEAD: other[:-1]})


def test_untied_and_absent_is_refused(untied):
    """C027 (c): never a random head."""
    config, tensors = untied
    with pytest.raises(LoadError, match="lm_head.weight; the config does not tie"):
        assembled(config, {n: t for n, t in tensors.items() if n != HEAD})


def test_a_missing_tensor_is_named(untied):
    config, tensors = untied
    name = "model.layers.1.mlp.down_proj.weight"
    with pytest.raises(LoadError, match=f"lacks {name}"):
        assembled(config, {n: t for n, t in tensors.items() if n != name})


def test_many_missing_tensors_are_counted(untied):
    config, tensors = untied
    with pytest.raises(LoadError, match="and 6 more"):
        assembled(config, {n: t for n, t in tensors.items() if ".1." not in n and n != HEAD})


def test_biases_without_a_place_are_named(tmp_path):
    """C029: a Qwen2 file read as Llama would lose its biases; it is refused instead."""
    _, tensors = checkpoint(make_qwen2(tmp_path / "q"))
    config, _ = checkpoint(make_llama(tmp_path / "l"))
    with pytest.raises(LoadError, match=r"self_attn\.k_proj\.bias"):
        assembled(config, tensors)


def test_an_unknown_tensor_is_named_and_old_rope_buffers_are_not(untied):
    """C029: everything in the file is used or named, save the frequencies that old files carry."""
    config, tensors = untied
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    assert assembled(config, tensors | buffer).keys() == assembled(config, tensors).keys()
    with pytest.raises(LoadError, match=r"model\.layers\.0\.self_attn\.extra"):
        assembled(config, tensors | {"model.layers.0.self_attn.extra": torch.ones(1)})
    with pytest.raises(LoadError, match=r"model\.layers\.2\."):  # a third layer in the file of a model of two
        assembled(config, tensors | {"model.layers.2.mlp.up_proj.weight": torch.ones(48, 32)})


def test_a_wrong_shape_is_named_with_both_shapes(untied):
    config, tensors = untied
    name = "model.layers.0.self_attn.k_proj.weight"
    with pytest.raises(LoadError, match=r"k_proj\.weight has shape \[32, 32\], the config asks for \[16, 32\]"):
        assembled(config, tensors | {name: torch.zeros(32, 32)})


def test_nothing_is_read_before_the_names_fit(untied):
    config, tensors = untied
    shapes = {n: tuple(t.shape) for n, t in tensors.items()} | {"stray": (1,)}

    def read(name):
        raise AssertionError("read too early")

    with pytest.raises(LoadError, match="stray"):
        assemble(config, shapes, read, torch.float32)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes_are_converted(untied, stored, wanted):
    config, tensors = untied
    state = assembled(config, {n: t.to(stored) for n, t in tensors.items()}, wanted)
    assert {t.dtype for t in state.values()} == {wanted}
    assert torch.equal(state["embed.weight"], tensors[EMBEDDING].to(stored).to(wanted))


def test_quantized_integers_are_refused(untied):
    config, tensors = untied
    with pytest.raises(LoadError, match="stored as torch.int8"):
        assembled(config, tensors | {EMBEDDING: torch.zeros(96, 32, dtype=torch.int8)})


def test_values_that_fp16_cannot_hold_are_refused(untied):
    config, tensors = untied
    large = tensors[EMBEDDING].clone()
    large[3, 3] = 70_000.0
    with pytest.raises(LoadError, match="beyond fp16"):
        assembled(config, tensors | {EMBEDDING: large}, torch.float16)
    assert assembled(config, tensors | {EMBEDDING: large}, torch.bfloat16)["embed.weight"].isfinite().all()
