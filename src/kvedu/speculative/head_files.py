"""A trained head as one file: matrices in 8 bits, the draft vocabulary, and what it was made for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from kvedu.errors import LoadError
from kvedu.model.transformer import Transformer
from kvedu.speculative.vocabulary import DraftVocabulary

IDS, SCALE = "vocabulary.ids", ".scale"


@dataclass(frozen=True)
class HeadFile:
    """``kind``: eagle, medusa, draft. ``facts``: width M, V tokens, L blocks of its target, and taps, depth or layers of its own."""

    path: Path
    kind: str
    facts: Mapping[str, int | list[int]]
    state: Mapping[str, Tensor]
    ids_R: Tensor

    def vocabulary(self) -> DraftVocabulary:
        """The tokens that it guesses."""
        return DraftVocabulary(self.ids_R, int(self.facts["V"]))

    def check(self, target: Transformer) -> None:
        """Refuse a target of another size. Raises ``LoadError`` with the numbers that disagree."""
        ours = [self.facts[name] for name in "MVL"]
        theirs = [target.config.M, target.config.V, target.config.L]
        if ours != theirs:
            raise LoadError(
                f"{self.path.name} was trained for a target of width {ours[0]}, {ours[1]} tokens and {ours[2]} blocks; "
                f"this one has {theirs[0]}, {theirs[1]} and {theirs[2]}. Train heads for it with tools/train_heads.py"
            )

    def fill(self, module: nn.Module, target: Transformer) -> nn.Module:
        """Give a module made for this file its weights, in the target's dtype and place. Raises ``LoadError`` for names that differ."""
        state = {name: x.to(dtype=target.dtype, device=target.device) for name, x in self.state.items()}
        shapes = {name: p.shape for name, p in module.named_parameters() if not name.startswith("embed.")}
        wrong = sorted(name for name in shapes.keys() | state.keys() if name not in state or state[name].shape != shapes.get(name))
        if wrong:
            raise LoadError(f"{self.path.name} and the {self.kind} head disagree on {len(wrong)} tensors: {', '.join(wrong[:6])}")
        module.load_state_dict(state, strict=False, assign=True)
        for name in state:
            module.get_parameter(name).requires_grad_(False)
        return module


def write_head(
    path: Path, kind: str, module: nn.Module, vocabulary: DraftVocabulary, target: Transformer, **own: int | list[int]
) -> None:
    """Write a trained module: every parameter that is its own (``requires_grad``). Matrices in 8 bits with a scale for each row, the rest in bf16.

    A guess decides nothing, so its weights may be coarse: half the bytes on disk. In memory they have the target's dtype.
    """
    state: dict[str, Tensor] = {}
    for name, p in module.named_parameters():
        if p.requires_grad and p.ndim == 2:
            state[name], state[name + SCALE] = coarse(p.detach().float())
        elif p.requires_grad:
            state[name] = p.detach().to(torch.bfloat16).contiguous()
    facts = {"M": target.config.M, "V": target.config.V, "L": target.config.L, **own}
    ids = vocabulary.ids_R.to(torch.int32)
    save_file({**state, IDS: ids}, path, metadata={"kind": kind, "facts": json.dumps(facts), "format": "pt"})


def coarse(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix as integers from -127 to 127 and a factor for each row ``[O, 1]``."""
    scale_O1 = weight_OI.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return torch.round(weight_OI / scale_O1).to(torch.int8), scale_O1


def read_head(path: Path, kind: str) -> HeadFile:
    """Read a head. Raises ``LoadError`` for a file that is missing, broken, or another kind's."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            said = file.metadata() or {}
            stored = {name: file.get_tensor(name) for name in file.keys()}
        facts = json.loads(said["facts"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise LoadError(f"{path} is no head file: {error}; tools/train_heads.py writes them") from error
    if said["kind"] != kind:
        raise LoadError(f"{path.name} holds a {said['kind']} head, wanted {kind}")
    scales = {name: x for name, x in stored.items() if name.endswith(SCALE)}
    state = {name: x * scales[name + SCALE] if name + SCALE in scales else x for name, x in stored.items() if name not in {IDS, *scales}}
    return HeadFile(path, kind, facts, state, stored[IDS].long())
