"""GGUF files: names, row order, quantized values, and refusal of what is not whole or not known."""

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvedu.errors import ConfigError, LoadError
from kvedu.fetch import model_path
from kvedu.model.gguf_file import GgufFile, hugging_face_name, permute, unpermute
from kvedu.model.weights import assemble
from tiny_checkpoints import MAKERS, gguf_name, make_gguf, make_llama, make_qwen2, make_qwen3


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """4 query heads, 2 KV heads, head size 8: the smallest model that C025 speaks of."""
    return make_llama(tmp_path_factory.mktemp("llama"))[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, llama):
    return make_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", llama)


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize("tied", [False, True])
def test_every_tensor_comes_back_bit_for_bit(tmp_path, family, tied):
    """C025: Q and K rows of the llama architecture in half-split order again, the others untouched."""
    _, model = MAKERS[family](tmp_path / "hf", tie_word_embeddings=tied)
    file = GgufFile(make_gguf(tmp_path / "m.gguf", model))
    expected = {n: p for n, p in model.named_parameters()}
    assert file.shapes == {n: tuple(p.shape) for n, p in expected.items()}
    for name, parameter in expected.items():
        assert torch.equal(file.read(name), parameter), name
    assert file.config.tied is tied
    assert file.config.qkv_bias == (family == "qwen2") and file.config.qk_norm == (family == "qwen3")
    state = assemble(file.config, file.shapes, file.read, torch.float32)
    assert sum(tensor.numel() for tensor in state.values()) == sum(p.numel() for p in expected.values())


@given(heads=st.integers(1, 6), pairs=st.integers(1, 5), columns=st.integers(0, 3))
def test_permute_then_unpermute_is_the_identity(heads, pairs, columns):
    """C025: for Q with its head count and for K with its own; biases (one axis) too."""
    rows = torch.arange(heads * pairs * 2 * max(columns, 1)).reshape(heads * pairs * 2, *([columns] if columns else []))
    assert torch.equal(unpermute(permute(rows, heads), heads), rows)
    assert torch.equal(permute(unpermute(rows, heads), heads), rows)


def test_the_wrong_head_count_is_not_the_identity():
    """C025: un-permuting K with the query head count gives other rows, so the counts matter."""
    rows = torch.arange(16)
    assert not torch.equal(unpermute(permute(rows, 2), 4), rows)


def test_permute_makes_neighbors_of_halves():
    assert permute(torch.arange(8), 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q5_0", "F16", "BF16"])
def test_quantized_rows_are_close_and_in_order(tmp_path, llama, kind):
    file = GgufFile(make_gguf(tmp_path / "m.gguf", llama, quantize=gguf.GGMLQuantizationType[kind]))
    name = "model.layers.1.self_attn.k_proj.weight"
    found, wanted = file.read(name), llama.get_parameter(name)
    error = (found - wanted).abs().max() / wanted.abs().max()
    assert 0 < error < {"Q4_0": 0.15, "Q4_1": 0.1, "Q5_0": 0.08, "Q8_0": 0.01, "F16": 1e-3, "BF16": 1e-2}[kind]


def test_names_go_both_ways(llama):
    for name, _ in llama.named_parameters():
        assert hugging_face_name(gguf_name(name)) == name
    assert hugging_face_name("blk.0.ffn_gate_exps.weight") == "blk.0.ffn_gate_exps.weight"


def test_a_file_cut_anywhere_is_one_load_error(tmp_path, whole):
    """A half file: cut in the header, the metadata, the tensor list, the data."""
    content = whole.read_bytes()
    for keep in (0, 3, 4, 10, 24, 100, 700, 2000, len(content) // 2, len(content) - 1):
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(content[:keep])
        with pytest.raises(LoadError, match="cut.gguf"):
            GgufFile(cut)


def test_a_damaged_length_is_one_load_error(tmp_path, whole):
    content = bytearray(whole.read_bytes())
    content[24:32] = (2**62).to_bytes(8, "little")  # the first key's length
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(LoadError, match="bad.gguf"):
        GgufFile(tmp_path / "bad.gguf")


def test_something_else_is_refused(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04 a zip file")
    with pytest.raises(LoadError, match="not a GGUF file"):
        GgufFile(tmp_path / "x.gguf")
    with pytest.raises(LoadError, match="cannot be read"):
        GgufFile(tmp_path / "absent.gguf")


def test_a_split_file_is_refused(tmp_path, llama):
    path = make_gguf(tmp_path / "m.gguf", llama, metadata={"split.count": 3})
    with pytest.raises(LoadError, match="one of 3 parts"):
        GgufFile(path)


def test_a_missing_and_an_unknown_tensor_are_named(tmp_path, llama):
    """C029: no tensor of the file is dropped in silence."""
    path = make_gguf(tmp_path / "a.gguf", llama, leave_out=("blk.1.ffn_up.weight",))
    file = GgufFile(path)
    with pytest.raises(LoadError, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        assemble(file.config, file.shapes, file.read, torch.float32)
    path = make_gguf(tmp_path / "b.gguf", llama, extra={"blk.0.attn_sinks.weight": torch.ones(4)})
    file = GgufFile(path)
    with pytest.raises(LoadError, match=r"blk\.0\.attn_sinks\.weight"):
        assemble(file.config, file.shapes, file.read, torch.float32)


def test_qwen2_biases_are_read_from_gguf(tmp_path):
    """C029: biases of size 1 arrive in the fused parameter, q then k then v."""
    _, model = make_qwen2(tmp_path / "hf")
    file = GgufFile(make_gguf(tmp_path / "m.gguf", model))
    state = assemble(file.config, file.shapes, file.read, torch.float32)
    attn = model.model.layers[1].self_attn
    wanted = torch.cat((attn.q_proj.bias, attn.k_proj.bias, attn.v_proj.bias))
    assert torch.equal(state["layers.1.attn.qkv.bias"], wanted) and wanted.abs().max() > 1


def test_qwen3_head_size_is_the_files(tmp_path):
    _, model = make_qwen3(tmp_path / "hf")
    config = GgufFile(make_gguf(tmp_path / "m.gguf", model)).config
    assert (config.head_dim, config.width // config.n_heads) == (16, 8)


def test_llama3_divisors_become_llama3_scaling(tmp_path):
    """C057: GGUF files keep llama3 scaling as a tensor; it is recognized, not dropped."""
    scaling = dict(rope_type="llama3", rope_theta=5e5, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=8192)
    _, model = make_llama(tmp_path / "hf", head_dim=64, rope_parameters=scaling, max_position_embeddings=131072)
    plain = 5e5 ** (-torch.arange(0, 64, 2) / 64)
    divisors = plain / model.model.rotary_emb.inv_freq
    config = GgufFile(make_gguf(tmp_path / "m.gguf", model, extra={"rope_freqs.weight": divisors})).config
    assert (config.rope.kind, config.rope.factor, config.rope.original_max_positions) == ("llama3", 32.0, 8192)
    divisors[20] *= 1.1
    with pytest.raises(ConfigError, match="rope_freqs.weight"):
        GgufFile(make_gguf(tmp_path / "n.gguf", model, extra={"rope_freqs.weight": divisors}))


def test_the_quick_reader_reads_what_gguf_reads(tmp_path, llama):
    """Every kind of array that the quick path touches, against gguf's own reader."""
    metadata = {"tokenizer.ggml.tokens": ["a", "", "ß", "𝄞"], "tokenizer.ggml.scores": [0.5, -1.0],
                "tokenizer.ggml.token_type": [1, 3, 1], "general.tags": ["one"]}
    path = make_gguf(tmp_path / "m.gguf", llama, metadata=metadata)
    plain = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    assert GgufFile(path).metadata == plain and plain["tokenizer.ggml.tokens"] == ["a", "", "ß", "𝄞"]


def test_smollm2_is_read_whole():
    """The book's model: 272 tensors, every one used, head tied."""
    file = GgufFile(model_path())
    assert len(file.shapes) == 272 and file.config.tied
    assert (file.config.L, file.config.M, file.config.H, file.config.K, file.config.D) == (30, 576, 9, 3, 64)
    assert (file.config.rope.theta, file.config.norm_eps, file.config.eos_ids) == (100_000.0, 1e-5, (2,))
