"""``load``: every way to name a model, every way that it can be wrong, and what it costs."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import tokenizers
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

from kvedu.errors import ConfigError, KveduError, LoadError
from kvedu.fetch import model_path
from kvedu.model import fast_store, hub
from kvedu.model.dtype import choose_dtype, cpu_bf16_units, fast_dtype
from kvedu.model.load import load
from kvedu.model.transformer import Transformer
from tiny_checkpoints import MAKERS, make_gguf, make_llama, make_qwen2

load_module = sys.modules["kvedu.model.load"]
SHARED_CACHE = os.environ.get("KVEDU_CACHE")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of its own for every test, so that nothing is found that was not made here."""
    monkeypatch.setenv("KVEDU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def same_weights(ours, theirs):
    """Parameter by parameter, with the stacks of ours taken apart."""
    found = dict(theirs.named_parameters())
    for i, block in enumerate(ours.layers):
        attn, mlp = (f"model.layers.{i}.{name}" for name in ("self_attn", "mlp"))
        qkv = torch.cat([found[f"{attn}.{x}_proj.weight"] for x in "qkv"])
        assert torch.equal(block.attn.qkv.weight, qkv)
        assert torch.equal(block.mlp.gate_up.weight, torch.cat([found[f"{mlp}.{x}_proj.weight"] for x in ("gate", "up")]))
        assert torch.equal(block.mlp.down.weight, found[f"{mlp}.down_proj.weight"])
    assert torch.equal(ours.embed.weight, theirs.get_input_embeddings().weight)
    assert torch.equal(ours.head.weight, theirs.get_output_embeddings().weight)


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize("tied", [False, True])
def test_a_folder(tmp_path, family, tied):
    folder, theirs = MAKERS[family](tmp_path / "hf", tie_word_embeddings=tied)
    model = load(folder, device="cpu")
    assert isinstance(model, Transformer) and not model.training
    same_weights(model, theirs)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert not any(p.is_meta for p in [*model.parameters(), *model.buffers()])
    assert (model.config.eos_ids, model.config.bos_id, model.tokenizer) == ((2,), 1, None)


def test_a_tied_head_is_the_embedding(tmp_path):
    """C027 (a): the same parameter object, counted once, from a folder and from GGUF."""
    folder, theirs = make_llama(tmp_path / "hf", tie_word_embeddings=True)
    for path in (folder, make_gguf(tmp_path / "m.gguf", theirs)):
        model = load(path, device="cpu")
        assert model.head.weight is model.embed.weight
        assert sum(p.numel() for p in model.parameters()) == theirs.num_parameters()


def test_shards(tmp_path):
    folder, theirs = make_llama(tmp_path / "hf", shard="20KB")
    same_weights(load(folder, device="cpu"), theirs)


def test_a_gguf_first_and_later(tmp_path, monkeypatch):
    """C025: Llama's rows put right; the second load is the store's and equal."""
    _, theirs = make_llama(tmp_path / "hf")
    path = make_gguf(tmp_path / "m.gguf", theirs)
    same_weights(load(path, device="cpu"), theirs)
    monkeypatch.setattr(load_module, "_dequantized", lambda path: pytest.fail("dequantized again"))
    again = load(str(path), device="cpu")
    same_weights(again, theirs)
    assert again.config.eos_ids == (2,)


def test_a_damaged_store_is_built_again(tmp_path, cache):
    _, theirs = make_llama(tmp_path / "hf")
    path = make_gguf(tmp_path / "m.gguf", theirs)
    load(path)
    (weights,) = cache.glob("store/*/weights.safetensors")
    os.truncate(weights, 1000)
    same_weights(load(path, device="cpu"), theirs)
    assert weights.stat().st_size > 1000


def test_no_room_for_the_store_is_a_warning_and_a_model(tmp_path, cache, monkeypatch):
    _, theirs = make_llama(tmp_path / "hf")
    path = make_gguf(tmp_path / "m.gguf", theirs)
    monkeypatch.setattr(fast_store.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0}))
    with pytest.warns(UserWarning, match="GB free"):
        same_weights(load(path, device="cpu"), theirs)
    assert not list(cache.glob("store/*/weights.safetensors"))


def test_large_models_are_not_stored(tmp_path, cache, monkeypatch):
    _, theirs = make_llama(tmp_path / "hf")
    monkeypatch.setattr(load_module, "LARGEST_STORE", 1000)
    same_weights(load(make_gguf(tmp_path / "m.gguf", theirs), device="cpu"), theirs)
    assert not list(cache.glob("store/*/weights.safetensors"))


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_dtype(tmp_path, kind):
    folder, theirs = make_qwen2(tmp_path / "hf")
    path = folder if kind == "folder" else make_gguf(tmp_path / "m.gguf", theirs)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        model = load(path, dtype=dtype, device="cpu")
        assert {p.dtype for p in model.parameters()} == {dtype}
        assert torch.equal(model.embed.weight, theirs.get_input_embeddings().weight.to(dtype))
    assert load(path, device="cpu").dtype is torch.float32
    with pytest.raises(LoadError, match="int8"):
        load(path, dtype=torch.int8)


def test_a_hub_name(tmp_path, monkeypatch):
    folder, theirs = make_llama(tmp_path / "hf")
    asked = []

    def snapshot_download(name, *, allow_patterns):
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    same_weights(load("org/tiny-1.5B", device="cpu"), theirs)
    assert asked[0][0] == "org/tiny-1.5B" and not any("bin" in pattern or pattern == "*" for pattern in asked[0][1])


def test_a_hub_name_in_the_local_hub_cache(tmp_path):
    """The layout that the hub's own client writes, found offline."""
    folder, theirs = make_llama(tmp_path / "hf")
    repo = tmp_path / "hub" / "models--org--tiny"
    shutil.copytree(folder, repo / "snapshots" / "abc")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    code = "import sys, kvedu.model.hub as hub; print(hub.snapshot('org/tiny'))"
    env = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == str(repo / "snapshots" / "abc")


def test_a_hub_that_cannot_be_reached(monkeypatch):
    def offline(name, **kwargs):
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(LoadError, match="'org/name' is no folder here.*no network"):
        load("org/name")


def test_a_hub_name_without_the_hub_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LoadError, match="pip install huggingface_hub"):
        hub.snapshot("org/name")


@pytest.mark.parametrize("name", ["smollm3", "./no/such", "/no/such/folder", "no/such.gguf", "", "a/b/c", "../x/y"])
def test_a_wrong_path_names_what_would_do(name, monkeypatch):
    monkeypatch.setattr(hub, "snapshot", lambda name: pytest.fail(f"asked the hub for {name!r}"))
    if name == "":
        monkeypatch.chdir("/")  # an empty name is the current folder: one without a config
    with pytest.raises(LoadError, match="smollm2-135m|config.json"):
        load(name)


def test_the_wrong_end_of_a_checkpoint(tmp_path):
    """A file where its folder is meant, and a folder where its file is meant."""
    folder, theirs = make_llama(tmp_path / "hf")
    with pytest.raises(LoadError, match=f"give its folder, {folder}"):
        load(folder / "model.safetensors")
    path = make_gguf(tmp_path / "m.gguf", theirs)
    with pytest.raises(LoadError, match=f"give the file itself: {path}"):
        load(tmp_path)


def test_a_tokenizer_that_cannot_be_read_is_said(tmp_path):
    folder, _ = make_llama(tmp_path / "hf")
    (folder / "tokenizer.model").write_bytes(b"")
    with pytest.warns(UserWarning, match="no tokenizer.json"):
        assert load(folder).tokenizer is None


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder, _ = make_llama(tmp_path / "hf")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0"))
    words.decoder = tokenizers.decoders.ByteLevel()
    words.save(str(folder / "tokenizer.json"))
    with pytest.raises(LoadError, match="ids up to 96, the model's embedding 96 rows"):
        load(folder)


def other_config(folder, **changes):
    made = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(made | changes))


@pytest.mark.parametrize("changes, error, part", [
    ({"hidden_size": 64}, LoadError, "has shape"), ({"num_hidden_layers": 3}, LoadError, r"lacks model\.layers\.2"),
    ({"num_hidden_layers": 1}, LoadError, r"holds model\.layers\.1"), ({"num_key_value_heads": 4}, LoadError, "k_proj"),
    ({"vocab_size": 97}, LoadError, "embed_tokens|lm_head"), ({"model_type": "gpt_neox"}, ConfigError, "gpt_neox"),
    ({"num_key_value_heads": 3}, ConfigError, "must divide"), ({"hidden_act": "gelu"}, ConfigError, "hidden_act"),
    ({"rope_scaling": {"rope_type": "magic"}, "rope_parameters": None}, ConfigError, "magic"),
    ({"model_type": "qwen3"}, LoadError, "q_norm"), ({"model_type": "qwen2"}, LoadError, "bias"),
])
def test_a_config_that_does_not_fit_the_file(tmp_path, changes, error, part):
    """One clear error naming the key or the tensor; no model."""
    folder, _ = make_llama(tmp_path / "hf")
    other_config(folder, **changes)
    with pytest.raises(error, match=part):
        load(folder)


def test_half_files(tmp_path, cache):
    folder, theirs = make_llama(tmp_path / "hf")
    path = make_gguf(tmp_path / "m.gguf", theirs)
    for file, given in ((path, path), (folder / "model.safetensors", folder)):
        os.truncate(file, file.stat().st_size * 2 // 3)
        with pytest.raises(LoadError, match="cut short|not a whole"):
            load(given)
    assert not list(cache.glob("store/*/weights.safetensors"))


def test_every_error_is_a_value_error():
    assert issubclass(LoadError, KveduError) and issubclass(ConfigError, KveduError) and issubclass(KveduError, ValueError)


def test_dtype_by_compute_capability(monkeypatch):
    """bf16 from 8.0; fp16 on 7.x, where the support query is not to be believed; fp32 below."""
    for capability, wanted in [((9, 0), torch.bfloat16), ((8, 0), torch.bfloat16), ((7, 5), torch.float16),
                               ((7, 0), torch.float16), ((6, 1), torch.float32)]:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        for choose in (choose_dtype, fast_dtype):
            dtype, reason = choose("cuda")
            assert dtype is wanted and f"{capability[0]}.{capability[1]}" in reason
    assert choose_dtype("cpu")[0] is torch.float32


def test_fast_dtype_on_a_cpu(monkeypatch):
    for found, wanted in [({"avx512_bf16": True}, torch.bfloat16), ({"amx_bf16": True}, torch.bfloat16),
                          ({"avx512_f": True, "avx512_bf16": False}, torch.float32), ({}, torch.float32)]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
        assert fast_dtype("cpu")[0] is wanted
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    assert cpu_bf16_units() == ("avx512_bf16",)


@pytest.fixture
def shared_cache(monkeypatch):
    """The cache that everything else uses: the book's model may be in it already."""
    if SHARED_CACHE is None:
        monkeypatch.delenv("KVEDU_CACHE")
    else:
        monkeypatch.setenv("KVEDU_CACHE", SHARED_CACHE)


def test_smollm2(shared_cache):
    """The book's model: whole, tied, with its tokenizer."""
    model = load("smollm2-135m", device="cpu")
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert model.head.weight is model.embed.weight and model.config.eos_ids == (2,)
    assert model.tokenizer.decode(model.tokenizer.encode("The KV cache")) == "The KV cache"


def test_smollm2_is_quick_and_later_needs_no_gguf(shared_cache, tmp_path):
    """Under 6 s the first time and 1.5 s later, in CPU seconds, so that a busy machine does not decide."""
    code = (
        "import sys, time, torch; start = time.process_time(); from kvedu.model.load import load\n"
        "model = load(device='cpu'); print(time.process_time() - start, model.tokenizer.encode('a'),"
        "*sorted({'gguf', 'transformers', 'triton'} & set(sys.modules)), sep=';')"
    )
    env = os.environ | {"KVEDU_MODEL_FILE": str(model_path()), "KVEDU_CACHE": str(tmp_path / "fresh")}
    for limit, strangers in ((6.0, ["gguf"]), (1.5, [])):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        seconds, ids, *brought = done.stdout.strip().split(";")
        assert float(seconds) < limit and brought == strangers
    assert ids == str(load(device="cpu").tokenizer.encode("a"))
    shutil.rmtree(tmp_path / "fresh")  # half a gigabyte that pytest would keep
