"""SmolLM2's tokenizer metadata and tokenizer, read once per test run (the GGUF reader takes some 2 s)."""

import functools
from pathlib import Path

from kvedu.fetch import model_path
from kvedu.model.tokenizer import Tokenizer


def gguf_path() -> Path:
    """The default model's file, found or fetched."""
    return model_path("smollm2-135m")


@functools.cache
def metadata() -> dict[str, object]:
    """GGUF key to Python value."""
    import gguf

    return {key: field.contents() for key, field in gguf.GGUFReader(gguf_path()).fields.items()}


@functools.cache
def tokenizer() -> Tokenizer:
    """Built from the metadata; tests must not change it."""
    return Tokenizer.from_gguf(metadata())
