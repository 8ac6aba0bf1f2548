"""A checkpoint by its hub name, through ``huggingface_hub`` where that is installed."""

from __future__ import annotations

from pathlib import Path

from kvedu.errors import LoadError

WANTED = (
    "config.json", "generation_config.json", "model.safetensors", "model-*.safetensors", "model.safetensors.index.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template*",
)
"""The files that loading reads; pickled, consolidated and converted copies stay on the hub."""


def snapshot(name: str) -> Path:
    """The folder of a hub checkpoint, from the local hub cache or downloaded.

    Raises ``LoadError`` when the hub cannot be reached, does not know the name, or
    ``huggingface_hub`` is not installed.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise LoadError(
            f"{name!r} is no folder here, and a hub name needs huggingface_hub: pip install huggingface_hub, "
            "or download the checkpoint and give its folder"
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED)))
    except Exception as error:  # its errors come from several libraries and change between versions
        raise LoadError(
            f"{name!r} is no folder here and could not be had from the hub ({type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}); "
            "check the name and the network, or give the path of a checkpoint folder"
        ) from error
