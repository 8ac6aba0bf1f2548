"""The fast form of a GGUF checkpoint: dequantized once, kept in the cache folder, memory-mapped later.

A store is a folder: ``weights.safetensors`` (fp32, the model's own parameter names),
``store.json`` (config, a fingerprint of the weights) and ``tokenizer/``. It is named
by the source file's SHA-256 and a format version; a *stamp* remembers the hash of a
file by its path, size and time, so that a later load need not read it all.
A store that is not whole is the same as none: it is built again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from safetensors import SafetensorError, safe_open
from torch import Tensor

from kvedu.config import ModelConfig
from kvedu.config_json import config_from_json, config_to_json
from kvedu.errors import LoadError
from kvedu.fetch import file_sha256, remove_stale
from kvedu.model.weights import state_shapes

FORMAT = 1
"""Raised whenever the meaning of a store changes; stores of other formats are removed on building."""

WEIGHTS, FACTS, TOKENIZER = "weights.safetensors", "store.json", "tokenizer"
_STRIDE = 16_384


@dataclass(frozen=True)
class Stored:
    """A store read back: the state's tensors are mapped from the file, copied when written to."""

    folder: Path
    config: ModelConfig
    state: dict[str, Tensor]

    @property
    def tokenizer_folder(self) -> Path | None:
        """Where the tokenizer was saved, or None if the checkpoint has none."""
        folder = self.folder / TOKENIZER
        return folder if folder.is_dir() else None


def read_store(source: Path, root: Path) -> Stored | None:
    """The store made from ``source`` under the folder ``root``; None if there is none that is whole.

    Cost: opens three small files and maps the weights; some 10 ms for SmolLM2.
    """
    folder = _store_folder(source, root)
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        config = config_from_json(facts["config"])
        with safe_open(folder / WEIGHTS, framework="pt", device="cpu") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        whole = shapes == state_shapes(config) and fingerprint(state) == facts["fingerprint"]
        whole = whole and facts["tokenizer"] == (folder / TOKENIZER).is_dir()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None
    return Stored(folder, config, state) if whole else None


def write_store(
    source: Path,
    root: Path,
    config: ModelConfig,
    state: dict[str, Tensor],
    save_tokenizer: Callable[[Path], None] | None,
) -> Path:
    """Keep ``state`` (fp32, canonical names) and the tokenizer; returns the store's folder.

    Written beside its place and renamed, so that no reader sees half of it.
    Raises ``LoadError`` when the disk has no room for it or cannot be written.
    Cost: 4 bytes per parameter of disk (0.54 GB for SmolLM2).
    """
    wanted = sum(tensor.numel() * 4 for tensor in state.values())
    try:
        folder = _store_folder(source, root)
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(folder.parent, "build-*")
        free = shutil.disk_usage(folder.parent).free
        if free < wanted * 1.1 + 50e6:
            raise LoadError(f"{folder.parent} has {free / 1e9:.2f} GB free, the fast form takes {wanted / 1e9:.2f} GB")
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder.parent, ignore_cleanup_errors=True) as work:
            part = Path(work) / folder.name
            part.mkdir()
            _write_weights(state, part / WEIGHTS)
            if save_tokenizer is not None:
                save_tokenizer(part / TOKENIZER)
            facts = {
                "config": config_to_json(config),
                "fingerprint": fingerprint(state),
                "tokenizer": save_tokenizer is not None,
                "source": source.name,
            }
            (part / FACTS).write_text(json.dumps(facts), encoding="utf-8")
            _put_in_place(part, folder)
    except OSError as error:
        raise LoadError(f"the fast form cannot be written under {root}: {error}") from error
    return folder


def fingerprint(state: dict[str, Tensor]) -> str:
    """CRC-32 over every 16,384th number (one per 64 KiB of fp32) of every tensor.

    Finds blocks that a power cut or a full disk left empty, without reading the whole file.
    """
    crc = 0
    for name in sorted(state):
        sample = state[name].reshape(-1).numpy()[::_STRIDE]
        crc = zlib.crc32(sample.tobytes(), zlib.crc32(name.encode(), crc))
    return f"{crc:08x}"


def _write_weights(state: dict[str, Tensor], path: Path) -> None:
    """A safetensors file, written straight from the tensors' memory (the library's writer copies them first).

    Format: header length (8 bytes, little-endian), JSON header, raw data. The header is padded
    so that the data begin at a multiple of 64 bytes, a cache line.
    """
    header: dict[str, object] = {}
    end = 0
    for name, tensor in state.items():
        start, end = end, end + tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in state.values():
            file.write(tensor.numpy().data)


def _put_in_place(part: Path, folder: Path) -> None:
    """Replace what is at ``folder`` (not whole, or another process's equal store) and drop other formats."""
    for old in folder.parent.glob(f"{_digest_of(folder)}-f*"):
        shutil.rmtree(old, ignore_errors=True)
    try:
        os.rename(part, folder)
    except OSError:
        if not (folder / FACTS).is_file():  # else another process was first
            raise


def _store_folder(source: Path, root: Path) -> Path:
    return root / "store" / f"{_source_digest(source, root)[:20]}-f{FORMAT}"


def _digest_of(folder: Path) -> str:
    return folder.name.rsplit("-f", 1)[0]


def _source_digest(source: Path, root: Path) -> str:
    """SHA-256 of the source, remembered under its path, size and time."""
    status = source.stat()
    key = f"{source.resolve()}|{status.st_size}|{status.st_mtime_ns}"
    stamp = root / "store" / "stamps" / hashlib.sha256(key.encode()).hexdigest()[:20]
    try:
        known = stamp.read_text(encoding="ascii")
        if len(known) == 64:
            return known
    except (OSError, ValueError):
        pass
    digest = file_sha256(source)
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digest, encoding="ascii")
    except OSError:
        pass  # a read-only cache only costs the hash again
    return digest
