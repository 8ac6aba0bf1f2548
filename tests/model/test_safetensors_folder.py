"""Checkpoint folders: one file or shards, the index deciding, and everything that can be wrong with them."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvedu.errors import ConfigError, LoadError
from kvedu.model.safetensors_folder import INDEX, SINGLE, SafetensorsFolder, folder_config
from tiny_checkpoints import make_llama


@pytest.fixture
def sharded(tmp_path):
    folder, model = make_llama(tmp_path, shard="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    return folder, model


def index(folder):
    return json.loads((folder / INDEX).read_text())


def write_index(folder, weight_map):
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize("shard", [None, "20KB"])
def test_names_shapes_and_values(tmp_path, shard):
    folder, model = make_llama(tmp_path, shard=shard)
    found = SafetensorsFolder(folder)
    expected = dict(model.named_parameters())
    assert found.shapes == {n: tuple(p.shape) for n, p in expected.items()}
    assert all(torch.equal(found.read(n), p) for n, p in expected.items())


def test_the_index_decides(sharded):
    """Other safetensors files in the folder are not looked at, not even one called model.safetensors."""
    folder, model = sharded
    save_file({"lm_head.weight": torch.zeros(1)}, folder / SINGLE)
    save_file({"tok_embeddings.weight": torch.zeros(1)}, folder / "consolidated.safetensors")
    assert torch.equal(SafetensorsFolder(folder).read("lm_head.weight"), model.lm_head.weight)


def test_a_missing_shard_is_named(sharded):
    folder, _ = sharded
    victim = sorted(set(index(folder)["weight_map"].values()))[1]
    (folder / victim).unlink()
    with pytest.raises(LoadError, match=f"{victim}.*missing"):
        SafetensorsFolder(folder)


def test_a_tensor_that_the_index_promises_and_no_shard_has(sharded):
    folder, _ = sharded
    listed = index(folder)["weight_map"]
    write_index(folder, listed | {"model.layers.9.x": next(iter(listed.values()))})
    with pytest.raises(LoadError, match=r"model\.layers\.9\.x is not in"):
        SafetensorsFolder(folder)


def test_a_tensor_in_another_shard_than_the_index_says(sharded):
    folder, _ = sharded
    listed = index(folder)["weight_map"]
    files = list(listed.values())
    name, file = next((n, f) for n, f in listed.items() if files.count(f) > 1)
    other = next(f for f in listed.values() if f != file)
    write_index(folder, listed | {name: other})
    with pytest.raises(LoadError, match=f"{name} is in {file}"):
        SafetensorsFolder(folder)


def test_a_tensor_that_the_index_does_not_list(sharded):
    folder, _ = sharded
    listed = index(folder)["weight_map"]
    write_index(folder, {n: f for n, f in listed.items() if n != "model.norm.weight"})
    with pytest.raises(LoadError, match=r"model\.norm\.weight.*not in"):
        SafetensorsFolder(folder)


def test_a_tensor_in_two_shards(sharded):
    folder, _ = sharded
    first, second = sorted(set(index(folder)["weight_map"].values()))[:2]
    name = next(iter(load_file(folder / first)))
    save_file(load_file(folder / second) | {name: torch.zeros(1)}, folder / second)
    with pytest.raises(LoadError, match=f"{name} is in .* and in"):
        SafetensorsFolder(folder)


def test_an_index_that_points_outside(sharded):
    folder, _ = sharded
    listed = index(folder)["weight_map"]
    write_index(folder, {n: f"../{f}" for n, f in listed.items()})
    with pytest.raises(LoadError, match="in the folder itself"):
        SafetensorsFolder(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": []}'])
def test_an_index_that_is_none(sharded, text):
    folder, _ = sharded
    (folder / INDEX).write_text(text)
    with pytest.raises(LoadError, match=INDEX):
        SafetensorsFolder(folder)


def test_a_file_cut_anywhere_is_one_load_error(tmp_path):
    folder, _ = make_llama(tmp_path)
    content = (folder / SINGLE).read_bytes()
    for keep in (0, 7, 8, 100, len(content) // 2, len(content) - 1):
        (folder / SINGLE).write_bytes(content[:keep])
        with pytest.raises(LoadError, match="not a whole safetensors file"):
            SafetensorsFolder(folder)


def test_an_empty_folder_and_pickled_weights(tmp_path):
    with pytest.raises(LoadError, match="no config.json"):
        folder_config(tmp_path)
    with pytest.raises(LoadError, match="neither"):
        SafetensorsFolder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"never opened")
    with pytest.raises(LoadError, match="does not open pickled"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("eos, wanted", [(7, (7,)), ([2, 7], (2, 7)), (None, (2,)), ([], ())])
def test_generation_config_decides_what_ends_a_text(tmp_path, eos, wanted):
    """C030: an int and a list are both accepted; what the generation config says wins."""
    folder, _ = make_llama(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos, "pad_token_id": 5}))
    config = folder_config(folder)
    assert (config.eos_ids, config.bos_id, config.pad_id) == (wanted, 1, 5)


def test_without_a_generation_config_the_config_decides(tmp_path):
    """C030: several EOS ids in config.json itself."""
    folder, _ = make_llama(tmp_path, eos_token_id=[2, 7])
    (folder / "generation_config.json").unlink()
    assert folder_config(folder).eos_ids == (2, 7)


@pytest.mark.parametrize("text, error", [("{", LoadError), ("[1]", LoadError), ('{"model_type": "gpt2"}', ConfigError)])
def test_a_config_that_cannot_be_read(tmp_path, text, error):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(error, match="config.json|gpt2"):
        folder_config(tmp_path)
