"""The trained drafts that come with kvedu, for SmolLM2-135M-Instruct: an EAGLE head, Medusa heads, MTP modules and a draft model.

    model = kvedu.load().pack()
    speculate(model, "def mean(xs):", eagle(model))

``tools/train_heads.py`` made them; ``table()`` says from what, how long, and how often their guesses are kept.
A wheel leaves the MTP modules out, which only chapter 6 runs; they are in the repository.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Sequence

import torch
from torch import nn

from kvedu.caches.contract import Cache
from kvedu.errors import LoadError
from kvedu.model.layers import Linear
from kvedu.model.transformer import Transformer
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.eagle import Eagle
from kvedu.speculative.eagle_head import EagleHead, HeadShape
from kvedu.speculative.head_files import HeadFile, read_head
from kvedu.speculative.medusa import Medusa
from kvedu.speculative.medusa_heads import MedusaHeads
from kvedu.speculative.mtp import Mtp
from kvedu.speculative.mtp_heads import MtpHeads
from kvedu.speculative.reduced_draft import reduce_head

FOLDER = Path(__file__).parent / "heads"
"""The files and their table. Another folder with the same files may be given: what ``tools/train_heads.py`` has just made."""


def eagle(target: Transformer, k: int = 3, cache: Cache | None = None, folder: Path = FOLDER) -> Eagle:
    """EAGLE with features of three depths, as in EAGLE-3: 5 M weights of its own. Raises ``LoadError`` for another target."""
    file = _read(folder, "eagle", target)
    with torch.device("meta"):
        head = EagleHead(HeadShape(target.config, tuple(file.facts["taps"]), len(file.ids_R)))
    return Eagle(_ready(file, head, target), file.vocabulary(), target, k, cache)


def medusa(target: Transformer, widths: Sequence[int] | None = None, folder: Path = FOLDER) -> Medusa:
    """Three Medusa heads, 1 M weights; a chain of three, or a tree of ``widths``. Raises ``LoadError`` for another target."""
    file = _read(folder, "medusa", target)
    with torch.device("meta"):
        heads = MedusaHeads(HeadShape(target.config, (target.config.L,), len(file.ids_R)), int(file.facts["k"]))
    return Medusa(_ready(file, heads, target), file.vocabulary(), target, widths)


def mtp(target: Transformer, folder: Path = FOLDER) -> Mtp:
    """Two MTP modules, 8 M weights, for a model that was not trained with them. Raises ``LoadError`` for another target."""
    file = _read(folder, "mtp", target)
    with torch.device("meta"):
        heads = MtpHeads(HeadShape(target.config, (target.config.L,), len(file.ids_R)), int(file.facts["k"]))
    return Mtp(_ready(file, heads, target), file.vocabulary(), target)


def draft(target: Transformer, k: int = 3, cache: Cache | None = None, folder: Path = FOLDER) -> DraftModel:
    """A distilled draft model of two layers, 7 M weights, that began as the target's first. Raises ``LoadError`` for another target."""
    file = _read(folder, "draft", target)
    with torch.device("meta"):
        model = Transformer(replace(target.config, n_layers=int(file.facts["layers"]), windowed_layers=None, tied=False))
        model.embed, model.head = target.embed, nn.Identity()
    file.fill(model, target)
    model.head, model.tokenizer = target.head, target.tokenizer
    reduced = reduce_head(model.eval(), file.vocabulary())
    if target.head.packed is not None:
        _pack(reduced.layers)
    return DraftModel(reduced, k, cache, vocabulary=file.vocabulary())


@cache
def table() -> dict[str, Any]:
    """How each was trained, and its acceptance by position on held-out text."""
    return json.loads((FOLDER / "heads.json").read_text(encoding="utf-8"))


def _read(folder: Path, kind: str, target: Transformer) -> HeadFile:
    path = folder / f"{kind}.safetensors"
    if not path.is_file():
        raise LoadError(
            f"there is no {path.name} in {folder}. A wheel of kvedu leaves mtp.safetensors out: take it from src/kvedu/speculative/heads of the "
            f"repository and give its folder=; or train it, tools/train_heads.py --only {kind}"
        )
    file = read_head(path, kind)
    file.check(target)
    return file


def _ready(file: HeadFile, module: nn.Module, target: Transformer) -> nn.Module:
    file.fill(module, target)
    if target.head.packed is not None:
        _pack(module)
    return module.eval()


def _pack(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, Linear) and part.packed is None:
            part.pack()
