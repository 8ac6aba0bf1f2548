"""A Hugging Face checkpoint folder: ``config.json`` and safetensors files, one or many shards.

With an index (``model.safetensors.index.json``) the index decides which file holds
which tensor; other safetensors files in the folder are not looked at.
Pickled weights (``.bin``, ``.pt``) are never opened: unpickling runs code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from kvedu.config import ModelConfig
from kvedu.config_hf import config_from_hf, with_generation_config
from kvedu.errors import LoadError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def folder_config(folder: Path) -> ModelConfig:
    """The folder's ``config.json``, with the special tokens of ``generation_config.json`` if that exists."""
    if not (folder / "config.json").is_file():
        files = sorted(path.name for path in folder.glob("*.gguf"))
        advice = f"; give the file itself: {folder / files[0]}" if files else f" and {SINGLE}"
        raise LoadError(f"{folder} has no config.json, and a checkpoint folder holds one{advice}")
    config = config_from_hf(read_json(folder / "config.json"))
    generation = folder / "generation_config.json"
    return with_generation_config(config, read_json(generation)) if generation.is_file() else config


class SafetensorsFolder:
    """The tensors of a checkpoint folder: shapes at once, values one at a time, memory-mapped.

    Raises ``LoadError`` when a shard is missing or cut short, when index and shards
    disagree, or when there are no safetensors at all.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files, listed = self._files()
        self._handles = {name: self._open(folder / name) for name in files}
        self._file_of: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file, handle in self._handles.items():
            for name in handle.keys():
                if name in self._file_of:
                    raise LoadError(f"tensor {name} is in {self._file_of[name]} and in {file}; one of them must go")
                self._file_of[name] = file
                self.shapes[name] = tuple(handle.get_slice(name).get_shape())
        if listed is not None and listed != self._file_of:
            self._refuse(listed)

    def read(self, name: str) -> Tensor:
        """One tensor, backed by the mapped file (no copy until it is changed)."""
        return self._handles[self._file_of[name]].get_tensor(name)

    def _files(self) -> tuple[list[str], dict[str, str] | None]:
        """File names to open, and the index's own claim of what is where (None without an index)."""
        index = self.folder / INDEX
        if index.is_file():
            listed = read_json(index).get("weight_map")
            if not isinstance(listed, dict) or not listed:
                raise LoadError(f"{index} has no weight_map")
            names = sorted(set(listed.values()))
            stray = [name for name in names if not isinstance(name, str) or Path(name).name != name]
            if stray:
                raise LoadError(f"{index} names {stray[0]!r}; shards must lie in the folder itself")
            absent = [name for name in names if not (self.folder / name).is_file()]
            if absent:
                raise LoadError(
                    f"shard {absent[0]} named in {INDEX} is missing from {self.folder} "
                    f"({len(absent)} of {len(names)} missing)"
                )
            return names, listed
        if (self.folder / SINGLE).is_file():
            return [SINGLE], None
        pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in self.folder.glob(pattern))
        advice = "; kvedu does not open pickled weights: save the model with safe_serialization=True" if pickled else ""
        raise LoadError(f"{self.folder} has neither {SINGLE} nor {INDEX}{advice}")

    def _refuse(self, listed: dict[str, str]) -> None:
        for name, file in listed.items():
            if name not in self._file_of:
                raise LoadError(f"tensor {name} is not in {file}, where {INDEX} says it is")
            if self._file_of[name] != file:
                raise LoadError(f"tensor {name} is in {self._file_of[name]}, {INDEX} says {file}")
        extra = sorted(self._file_of.keys() - listed.keys())
        raise LoadError(f"tensor {extra[0]} is in {self._file_of[extra[0]]} and not in {INDEX}")

    @staticmethod
    def _open(path: Path) -> Any:
        try:
            return safe_open(path, framework="pt", device="cpu")
        except (SafetensorError, OSError) as error:
            raise LoadError(
                f"{path} is not a whole safetensors file ({path.stat().st_size} bytes): {error}; download it again"
            ) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises ``LoadError`` naming the file."""
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(made, dict):
        raise LoadError(f"{path} holds a {type(made).__name__}, not an object of settings")
    return made
