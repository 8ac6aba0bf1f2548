"""The fast store: what goes in comes out mapped; anything not whole is built again; a full disk is said."""

import json
import os
import shutil
import time
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from kvedu.errors import LoadError
from kvedu.model import fast_store
from kvedu.model.fast_store import FACTS, TOKENIZER, WEIGHTS, read_store, write_store
from kvedu.model.gguf_file import GgufFile
from kvedu.model.weights import assemble
from tiny_checkpoints import make_gguf, make_llama


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    _, model = make_llama(folder / "hf", vocab_size=1024, tie_word_embeddings=True)
    file = GgufFile(make_gguf(folder / "m.gguf", model))
    return file.path, file.config, assemble(file.config, file.shapes, file.read, torch.float32)


def save_tokenizer(folder):
    folder.mkdir()
    (folder / "words.txt").write_text("hello")


@pytest.fixture
def stored(tmp_path, checkpoint):
    """A copy of the source, the cache folder and the store in it."""
    source = shutil.copy2(checkpoint[0], tmp_path / "m.gguf")
    folder = write_store(source, tmp_path / "cache", *checkpoint[1:], save_tokenizer)
    return SimpleNamespace(source=source, root=tmp_path / "cache", folder=folder)


def test_what_goes_in_comes_out(stored, checkpoint):
    found = read_store(stored.source, stored.root)
    assert found.config == checkpoint[1]
    assert found.state.keys() == checkpoint[2].keys()
    assert all(torch.equal(found.state[name], tensor) for name, tensor in checkpoint[2].items())
    assert (found.tokenizer_folder / "words.txt").read_text() == "hello"


def test_it_is_plain_safetensors_on_cache_lines(stored, checkpoint):
    path = stored.folder / WEIGHTS
    loaded = load_file(path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in checkpoint[2].items())
    assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % 64 == 0


def test_tensors_are_mapped_and_private(stored):
    """Writing to a loaded tensor does not change the store."""
    found = read_store(stored.source, stored.root)
    found.state["norm.weight"].fill_(9.0)
    assert not (read_store(stored.source, stored.root).state["norm.weight"] == 9.0).any()


def test_nothing_else_stays_in_the_cache(stored):
    assert sorted(p.name for p in (stored.root / "store").iterdir()) == [stored.folder.name, "stamps"]


def test_no_store_is_none(tmp_path, checkpoint):
    assert read_store(checkpoint[0], tmp_path / "empty") is None


def test_a_moved_or_touched_source_finds_its_store(stored, tmp_path):
    os.utime(stored.source, (1, 1))
    assert read_store(stored.source, stored.root) is not None
    moved = stored.source.rename(tmp_path / "other.gguf")
    assert read_store(moved, stored.root) is not None


def test_a_changed_source_does_not(stored):
    content = bytearray(stored.source.read_bytes())
    content[-1] ^= 1
    stored.source.write_bytes(content)
    os.utime(stored.source, (1, 1))
    assert read_store(stored.source, stored.root) is None


def test_the_hash_is_taken_once(stored, monkeypatch):
    def again(path):
        raise AssertionError("hashed again")

    monkeypatch.setattr(fast_store, "file_sha256", again)
    assert read_store(stored.source, stored.root) is not None


def damage_config(folder):
    facts = json.loads((folder / FACTS).read_text())
    (folder / FACTS).write_text(json.dumps(facts | {"config": facts["config"].replace('"n_heads": 4', '"n_heads": 3')}))


def swap_weights(folder):
    """A block of zeros in the middle, as a disk that lost power may leave: right size, right header."""
    content = bytearray((folder / WEIGHTS).read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    content[start : start + 130_000] = bytes(130_000)
    (folder / WEIGHTS).write_bytes(content)


DAMAGES = {
    "no weights": lambda folder: (folder / WEIGHTS).unlink(),
    "half the weights": lambda folder: os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size // 2),
    "one byte short": lambda folder: os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size - 1),
    "empty weights": lambda folder: os.truncate(folder / WEIGHTS, 0),
    "a block of zeros": swap_weights,
    "no facts": lambda folder: (folder / FACTS).unlink(),
    "half the facts": lambda folder: os.truncate(folder / FACTS, 50),
    "other config": damage_config,
    "no tokenizer": lambda folder: shutil.rmtree(folder / TOKENIZER),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_that_is_not_whole_is_none_and_is_replaced(stored, checkpoint, damage):
    DAMAGES[damage](stored.folder)
    assert read_store(stored.source, stored.root) is None
    write_store(stored.source, stored.root, *checkpoint[1:], save_tokenizer)
    assert read_store(stored.source, stored.root) is not None


def test_another_format_is_not_read_and_is_removed(stored, checkpoint, monkeypatch):
    monkeypatch.setattr(fast_store, "FORMAT", 99)
    assert read_store(stored.source, stored.root) is None
    write_store(stored.source, stored.root, *checkpoint[1:], None)
    assert not stored.folder.exists()
    assert read_store(stored.source, stored.root).tokenizer_folder is None


def test_killed_builds_are_swept_after_a_day(stored, checkpoint):
    for name, age in (("build-old", 100_000), ("build-new", 10)):
        (stored.root / "store" / name).mkdir()
        os.utime(stored.root / "store" / name, (time.time() - age,) * 2)
    write_store(stored.source, stored.root, *checkpoint[1:], None)
    assert [path.name for path in stored.root.glob("store/build-*")] == ["build-new"]


def test_a_full_disk_is_said_before_writing(tmp_path, checkpoint, monkeypatch):
    monkeypatch.setattr(fast_store.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(LoadError, match="0.00 GB free"):
        write_store(checkpoint[0], tmp_path / "cache", *checkpoint[1:], None)


def test_a_failure_while_writing_leaves_nothing(tmp_path, checkpoint):
    def full(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(LoadError, match="No space left"):
        write_store(checkpoint[0], tmp_path / "cache", *checkpoint[1:], full)
    assert [p.name for p in (tmp_path / "cache" / "store").iterdir()] == ["stamps"]
    assert read_store(checkpoint[0], tmp_path / "cache") is None
