"""More text by the target, written shard by shard.

A head that learns from few texts soon knows them by heart; what helps then is text that it has not seen. Prompts are other
beginnings of source files than those of ``head_text``, and what it asked but had no room for.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import asdict
from pathlib import Path

import torch
from head_clock import clock
from head_features import BATCH, SHARD
from head_text import LENGTH, READ_FROM, SEED, Prompt, Sequence, setting, source_files
from torch import Tensor

from kvedu.caches.static import StaticCache
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer

MORE = 12 * SHARD
"""Sequences."""


def prompts(model: Transformer, left: list[Prompt]) -> list[Prompt]:
    """``left``, and beginnings of source files, in an order drawn by the seed."""
    rng, found = random.Random(f"{SEED} more"), [p for p in left if not p.held_out]
    newline = {i for i in range(model.config.V) if b"\n" in model.tokenizer.token_bytes(i)}
    for path in source_files(READ_FROM):
        ids = model.tokenizer.encode(path.read_text(encoding="utf-8"))
        starts = [0, *(i + 1 for i, token in enumerate(ids) if token in newline)]
        start = rng.choice([i for i in starts if i + 128 <= len(ids)] or [0])
        found.append(Prompt("code", ids[start : start + rng.randint(32, 96)], setting(len(found)), held_out=False))
    rng.shuffle(found)
    return found[:MORE]


def more(model: Transformer, asked: list[Prompt], work: Path) -> list[Sequence]:
    """What the target makes of all prompts; kept in ``work`` shard by shard, so that a run that was stopped goes on."""
    sequences: list[Sequence] = []
    for number in range(len(asked) // SHARD):
        path, group = work / f"more-{number:03d}.json", asked[number * SHARD : (number + 1) * SHARD]
        if not path.is_file():
            with clock(work, path.stem):
                texts = written(model, group, SEED + number)
            done = [Sequence(p.kind, ids, len(p.ids), p.sampling.greedy) for p, ids in zip(group, texts, strict=True)]
            (beside := path.with_suffix(".new")).write_text(json.dumps([asdict(s) for s in done]))
            os.replace(beside, path)
            print(f"wrote {(number + 1) * SHARD} of {len(asked)} more", flush=True)
        sequences += [Sequence(**fields) for fields in json.loads(path.read_text())]
    return sequences


@torch.inference_mode()
def written(model: Transformer, asked: list[Prompt], seed: int) -> list[list[int]]:
    """Texts up to ``LENGTH`` tokens or the target's own end."""
    cache = StaticCache(model.config, max_sequences=len(asked), max_length=LENGTH, dtype=model.dtype)
    generator, settings = torch.Generator().manual_seed(seed), [p.sampling for p in asked]
    texts, seqs = [list(p.ids) for p in asked], [cache.add() for _ in asked]
    alive = set(range(len(asked)))

    def run(numbers: list[int], news: list[list[int]]) -> None:
        with cache.step({seqs[i]: len(new) for i, new in zip(numbers, news)}) as view:
            logits_BV = model(torch.tensor([t for new in news for t in new]), view, view.last_rows)
        for i, token in zip(numbers, chosen(logits_BV, [settings[i] for i in numbers], generator)):
            if texts[i][-1] not in model.config.eos_ids and len(texts[i]) < LENGTH:
                texts[i].append(token)
            else:
                alive.discard(i)

    for first in range(0, len(asked), BATCH):
        numbers = list(range(first, min(first + BATCH, len(asked))))
        run(numbers, [list(texts[i]) for i in numbers])
    while alive:
        numbers = sorted(alive)
        run(numbers, [texts[i][-1:] for i in numbers])
    return texts


def chosen(logits_BV: Tensor, settings: list[Sampling], generator: torch.Generator) -> list[int]:
    """The next token of each text: the best, or one drawn at the text's temperature."""
    tokens_B = logits_BV.argmax(dim=-1)
    drawn = [i for i, sampling in enumerate(settings) if not sampling.greedy]
    if drawn:
        heat = torch.tensor([[settings[i].temperature] for i in drawn])
        p_nV = torch.softmax(logits_BV[drawn].float() / heat, dim=-1)
        tokens_B[drawn] = torch.multinomial(p_nV, 1, generator=generator)[:, 0]
    return tokens_B.tolist()
