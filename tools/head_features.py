"""What a draft head reads and must foretell, for every token of the training text: run once through the target, kept in files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from head_clock import clock
from head_text import LENGTH, Sequence
from torch import Tensor

from kvedu.caches.static import StaticCache
from kvedu.model.transformer import Transformer

SHARD = 64
"""Sequences of one file."""
BATCH = 8
"""Sequences of one pass."""


@dataclass(frozen=True)
class Features:
    """B sequences of T tokens: ``ids_BT`` (padded with 0), ``lengths_B``, and ``features_BTE``, the outputs of the blocks ``taps``.

    The last tap is the target's last block: ``hidden_BTM``.
    """

    ids_BT: Tensor
    lengths_B: Tensor
    features_BTE: Tensor
    width: int

    def __len__(self) -> int:
        return len(self.ids_BT)

    @property
    def tokens(self) -> int:
        """Tokens without the padding."""
        return int(self.lengths_B.sum())

    def hidden(self, which: Tensor | slice) -> Tensor:
        """Outputs ``[b, T, M]`` of the target's last block."""
        return self.features_BTE[which, :, -self.width :]


@torch.inference_mode()
def features(model: Transformer, sequences: list[Sequence], taps: tuple[int, ...], work: Path, name: str) -> Features:
    """Features of all sequences, made shard by shard, so that a run that was stopped goes on."""
    shards = []
    for first in range(0, len(sequences), SHARD):
        path = work / f"features-{name}-{first // SHARD:03d}.pt"
        if not path.is_file():
            with clock(work, path.stem):
                shard = run(model, [s.ids for s in sequences[first : first + SHARD]], taps)
            torch.save(shard, beside := path.with_suffix(".new"))
            os.replace(beside, path)
            print(f"{name}: ran {min(first + SHARD, len(sequences))} of {len(sequences)} sequences", flush=True)
        shards.append(torch.load(path))
    ids, lengths, outputs = (torch.cat(parts) for parts in zip(*shards))
    return Features(ids, lengths, outputs, model.config.M)


def run(model: Transformer, texts: list[list[int]], taps: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, lengths and features of some texts, in passes of ``BATCH``."""
    ids_BT = torch.zeros(len(texts), LENGTH, dtype=torch.int32)
    features_BTE = torch.zeros(len(texts), LENGTH, len(taps) * model.config.M, dtype=torch.bfloat16)
    for first in range(0, len(texts), BATCH):
        group = texts[first : first + BATCH]
        cache = StaticCache(model.config, max_sequences=len(group), max_length=LENGTH, dtype=model.dtype)
        with cache.step({cache.add(): len(ids) for ids in group}) as view:
            _, features_NE = model.tapped(torch.tensor([i for ids in group for i in ids]), view, taps)
        for i, (ids, row) in enumerate(zip(group, view.rows), first):
            ids_BT[i, : len(ids)] = torch.tensor(ids)
            features_BTE[i, : len(ids)] = features_NE[row.rows].to(torch.bfloat16)
    return ids_BT, torch.tensor([len(ids) for ids in texts]), features_BTE
