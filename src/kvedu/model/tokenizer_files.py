"""Tokenizer files: Hugging Face folders, and the form that kvedu saves for quick loading."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any, Mapping

import tokenizers

from kvedu.errors import LoadError

_META = "kvedu_tokenizer.json"
_FORMAT = 1


def read_folder(path: str | PathLike[str]) -> dict[str, Any]:
    """The arguments of ``Tokenizer`` from a Hugging Face folder. Raises ``LoadError`` naming file or key."""
    folder = Path(path)
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise LoadError(
            f"{file} is missing; kvedu reads the fast form of a tokenizer. "
            "Try the folder that holds it, or save it once with transformers' AutoTokenizer"
        )
    backend = _backend(file.read_text(encoding="utf-8"), file)
    _check_added_ids(backend, _json(file), file)
    config = _json(folder / "special_tokens_map.json") | _json(folder / "tokenizer_config.json")
    generation, model = _json(folder / "generation_config.json"), _json(folder / "config.json")

    def ids(name: str) -> list[int]:
        """Ids of the token called ``name``: the tokenizer's own first, then the configs'."""
        own = _token_id(backend, config.get(f"{name}_token"), f"{name}_token")
        given = generation.get(f"{name}_token_id")
        given = model.get(f"{name}_token_id") if given is None else given
        given = given if isinstance(given, list) else [given]
        return [i for i in dict.fromkeys([own, *given]) if i is not None]

    def one(name: str) -> int | None:
        """As ``ids``; but a tokenizer that lists its tokens and not this one has none."""
        found = ids(name) if f"{name}_token" not in config or config[f"{name}_token"] else []
        return found[0] if found else None

    return {
        "backend": backend,
        "bos_id": one("bos"),
        "eos_ids": tuple(ids("eos")),
        "pad_id": one("pad"),
        "unk_id": one("unk"),
        "chat_template": _template(folder, config),
    }


def write_saved(path: str | PathLike[str], backend: tokenizers.Tokenizer, meta: Mapping[str, Any]) -> None:
    """Write ``tokenizer.json`` and its meta file; each appears whole or not at all."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    text = backend.to_str()
    _replace(folder / "tokenizer.json", text)
    _replace(folder / _META, json.dumps({"format": _FORMAT, "sha256": _digest(text), **meta}))


def read_saved(path: str | PathLike[str]) -> dict[str, Any]:
    """The arguments of ``Tokenizer`` from a saved folder. Raises ``LoadError`` unless both files belong together."""
    folder = Path(path)
    meta, file = _json(folder / _META), folder / "tokenizer.json"
    if meta.pop("format", None) != _FORMAT or not file.is_file():
        raise LoadError(f"{folder} is not a tokenizer saved in format {_FORMAT}; build it again and call save()")
    text = file.read_text(encoding="utf-8")
    if _digest(text) != meta.pop("sha256", None):
        raise LoadError(f"{file} is not the file that {_META} was written for; build it again and call save()")
    return {"backend": _backend(text, file), **meta, "eos_ids": tuple(meta["eos_ids"])}


def _backend(text: str, file: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the Rust side raises plain Exception
        raise LoadError(f"{file} is not a tokenizer that `tokenizers` {tokenizers.__version__} reads: {error}") from error


def _check_added_ids(backend: tokenizers.Tokenizer, raw: Mapping[str, Any], file: Path) -> None:
    """`tokenizers` gives an added token the next free id, whatever the file says; then all ids after it are wrong."""
    for token in raw.get("added_tokens") or ():
        found = backend.token_to_id(token["content"])
        if found != token["id"]:
            raise LoadError(f"added token {token['content']!r} has id {token['id']} in {file}, but gets {found} when read")


def _json(file: Path) -> dict[str, Any]:
    """A JSON object, or {} when the file does not exist."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LoadError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise LoadError(f"{file} holds a {type(value).__name__}; wanted a JSON object")
    return value


def _token_id(backend: tokenizers.Tokenizer, token: Any, key: str) -> int | None:
    """The id of a token given as a string or as ``{"content": …}``."""
    text = token.get("content") if isinstance(token, dict) else token
    if not text:
        return None
    found = backend.token_to_id(text)
    if found is None:
        raise LoadError(f"{key} is {text!r}, which tokenizer.json does not have; the two files do not belong together")
    return found


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The chat template: its own file first, else the config's; of several named ones, ``default``."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        if "default" not in named:
            raise LoadError(f"chat_template names {sorted(named)} and no 'default'; put the wanted one in {file.name}")
        return named["default"]
    return template


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _replace(file: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
