"""``load``: a model by name, file or folder, whole and with its tokenizer, or one clear error."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch
from torch import Tensor

from kvedu.config import ModelConfig
from kvedu.errors import LoadError
from kvedu.fetch import MODEL_NAME, model_path
from kvedu.folders import cache_folder
from kvedu.model import fast_store, hub
from kvedu.model.dtype import choose_device, choose_dtype
from kvedu.model.safetensors_folder import SafetensorsFolder, folder_config
from kvedu.model.tokenizer import Tokenizer
from kvedu.model.transformer import Transformer
from kvedu.model.weights import assemble, converted

LARGEST_STORE = 4 * 2**30
"""Bytes of fp32 weights up to which a GGUF's fast form is kept; a 7B model would take 28 GB of somebody's disk."""

Loaded = tuple[ModelConfig, dict[str, Tensor], "Tokenizer | None"]


def load(
    name_or_path: str | Path = MODEL_NAME,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Transformer:
    """The model, in eval mode, with its tokenizer as ``model.tokenizer`` (None if the checkpoint has none).

    ``name_or_path``: ``"smollm2-135m"`` (fetched once), a ``.gguf`` file, a folder with
    ``config.json`` and safetensors, or a hub name like ``"org/name"``. ``dtype`` and
    ``device`` are chosen by capability when not given (``kvedu.model.dtype``).

    Raises ``LoadError`` or ``ConfigError`` naming the file, tensor or key in the way; a
    model is loaded whole or not at all. Cost for SmolLM2: some 4 s the first time
    (dequantized, 0.54 GB kept in the cache folder), 0.5 s later.

    >>> model = load()
    >>> model.config.n_layers, model.config.attention_kind
    (30, 'GQA')
    """
    device = choose_device() if device is None else torch.device(device)
    if dtype is None:
        dtype, _ = choose_dtype(device)
    if dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise LoadError(f"dtype {dtype} is not one to compute in; use torch.float32, bfloat16, float16 or float64")
    path = resolve(name_or_path)
    config, state, tokenizer = _from_folder(path, dtype) if path.is_dir() else _from_gguf(path)
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise LoadError(
            f"the tokenizer of {path} has ids up to {tokenizer.vocab_size - 1}, the model's embedding {config.vocab_size} "
            "rows: they belong to different models"
        )
    model = build(config, {name: converted(name, tensor, dtype).to(device) for name, tensor in state.items()})
    model.tokenizer = tokenizer
    return model


def build(config: ModelConfig, state: dict[str, Tensor]) -> Transformer:
    """A transformer whose parameters are the tensors of ``state`` themselves (no copy), in eval mode."""
    with torch.device("meta"):
        model = Transformer(config)
    tied = {"head.weight": state["embed.weight"]} if config.tied else {}
    model.load_state_dict(state | tied, strict=True, assign=True)
    if config.tied:
        model.tie()
    return model.eval()


def resolve(name_or_path: str | Path) -> Path:
    """The file or folder that a name stands for, fetched if need be. Raises ``LoadError`` naming what was tried."""
    if str(name_or_path) == MODEL_NAME:
        return model_path()
    path = Path(name_or_path).expanduser()
    if path.is_file() and path.suffix == ".safetensors":
        raise LoadError(f"{path} is one file of a checkpoint; give its folder, {path.parent}")
    if path.is_dir() or path.is_file():
        return path
    if isinstance(name_or_path, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]*\w", name_or_path) and path.suffix != ".gguf":
        return hub.snapshot(name_or_path)
    raise LoadError(
        f"{name_or_path!s} is no file or folder here; give {MODEL_NAME!r}, a .gguf file, a checkpoint folder "
        "or a hub name like 'org/name'"
    )


def _from_folder(folder: Path, dtype: torch.dtype) -> Loaded:
    config = folder_config(folder)
    checkpoint = SafetensorsFolder(folder)
    state = assemble(config, checkpoint.shapes, checkpoint.read, dtype)
    if (folder / "tokenizer.json").is_file():
        return config, state, Tokenizer.from_folder(folder)
    if (folder / "tokenizer.model").is_file() or (folder / "vocab.json").is_file():
        warnings.warn(
            f"{folder} has a tokenizer but no tokenizer.json; model.tokenizer is None. transformers writes the file: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)", stacklevel=4,
        )
    return config, state, None


def _from_gguf(path: Path) -> Loaded:
    """From the fast store, or from the file itself with the store built on the way."""
    root = cache_folder()
    stored = fast_store.read_store(path, root)
    if stored is None:
        config, state, tokenizer = _dequantized(path)
        if 4 * sum(tensor.numel() for tensor in state.values()) > LARGEST_STORE:
            return config, state, tokenizer
        try:
            fast_store.write_store(path, root, config, state, None if tokenizer is None else tokenizer.save)
        except LoadError as error:
            warnings.warn(f"{error}; loading works without it, but takes seconds each time", stacklevel=4)
            return config, state, tokenizer
        stored = fast_store.read_store(path, root)
        if stored is None:
            return config, state, tokenizer
        return stored.config, stored.state, tokenizer
    folder = stored.tokenizer_folder
    return stored.config, stored.state, None if folder is None else Tokenizer.from_saved(folder)


def _dequantized(path: Path) -> Loaded:
    from kvedu.model.gguf_file import GgufFile  # gguf is only needed here, the first time

    file = GgufFile(path)
    state = assemble(file.config, file.shapes, file.read, torch.float32)
    has_tokenizer = "tokenizer.ggml.tokens" in file.metadata
    return file.config, state, Tokenizer.from_gguf(file.metadata) if has_tokenizer else None
