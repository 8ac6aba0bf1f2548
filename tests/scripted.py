"""A model that says what a test wants: token by position, while its cache fills as any model's does."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from kvedu.model.tokenizer import Tokenizer
from kvedu.model.transformer import Transformer
from tiny import tiny_config


class Scripted(Transformer):
    """After the token at position p, the most likely next one is ``script[p]`` (by a gap of 9 in the logits)."""

    def __init__(self, script: dict[int, int], **config) -> None:
        super().__init__(tiny_config(**config))
        self.script = script
        for p in self.parameters():
            p.data.normal_(0, 0.1)

    def hidden(self, ids_N, view):
        super().hidden(ids_N, view)
        return view.positions[:, None].float()

    def logits(self, hidden_RM):
        out = torch.zeros(len(hidden_RM), self.config.V)
        for row, position in enumerate(hidden_RM[:, 0].int().tolist()):
            out[row, self.script.get(position, 0)] = 9.0
        return out


def pieces_tokenizer(pieces: list[str], **settings) -> Tokenizer:
    """A tokenizer whose token i is exactly ``pieces[i]``, joined without spaces."""
    backend = Backend(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token=pieces[0]))
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, **settings)
