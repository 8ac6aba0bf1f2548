"""Heads for tiny models: made, or taught in a second or two so that they are often right."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from kvedu.caches.none import NoCache
from kvedu.model.loops import greedy_uncached
from kvedu.model.transformer import Transformer
from kvedu.speculative.eagle import Eagle
from kvedu.speculative.eagle_head import HeadShape, fresh_head
from kvedu.speculative.medusa import Medusa
from kvedu.speculative.medusa_heads import fresh_medusa
from kvedu.speculative.mtp import Mtp
from kvedu.speculative.mtp_heads import fresh_mtp
from kvedu.speculative.vocabulary import DraftVocabulary
from tiny import random_ids


def most_of(model: Transformer) -> DraftVocabulary:
    """All ids but every third from id 2 on: some tokens can never be guessed."""
    V = model.config.V
    return DraftVocabulary(torch.tensor([i for i in range(V) if i % 3 != 2]), V)


def shape(model: Transformer, taps: tuple[int, ...] | None = None) -> HeadShape:
    return HeadShape(model.config, taps or (model.config.L,), len(most_of(model)))


def eagle(model: Transformer, k: int, taps: tuple[int, ...] | None = None, **settings) -> Eagle:
    """A taught head; ``taps`` None: the last block."""
    head = fresh_head(shape(model, taps), model)
    teach(head, model, lambda features, tokens, view: [head.step(model.embed(tokens), head.feature(features), view)])
    return Eagle(head, most_of(model), model, k, **settings)


def medusa(model: Transformer, k: int, widths: tuple[int, ...] | None = None) -> Medusa:
    heads = fresh_medusa(shape(model), model, k)
    teach(heads, model, lambda features, tokens, view: heads(features).unbind(1))
    return Medusa(heads, most_of(model), model, widths)


def mtp(model: Transformer, k: int) -> Mtp:
    """Modules as they begin."""
    return Mtp(fresh_mtp(shape(model), model, k), most_of(model), model)


def teach(head: nn.Module, model: Transformer, outputs, steps: int = 25) -> None:
    """A few steps on the model's own greedy text: output j at token i is to foretell token i + j + 2."""
    texts = own_text(model, head.shape.taps)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    rows = model.head.plain_weight().detach()
    for _ in range(steps):
        loss = torch.zeros(())
        for ids, features_TE in texts:
            cache = NoCache(head.shape.layer)
            with cache.step({cache.add(): len(ids) - 1}) as view:
                outs = outputs(features_TE[:-1], ids[1:], view)
                view.appended.add(0)  # Medusa's heads have no layer that would
            for j, f_TM in enumerate(outs):
                loss = loss + cross_entropy(f_TM[: len(ids) - 2 - j] @ rows.T, ids[j + 2 :])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    head.requires_grad_(False)


def own_text(model: Transformer, taps: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Greedy texts of a model and its outputs at ``taps`` on them."""
    found = []
    for seed in range(3):
        prompt = random_ids(4, model.config.V, seed=20 + seed)
        ids = torch.tensor([*prompt, *greedy_uncached(model, prompt, 28)])
        cache = NoCache(model.config)
        with torch.no_grad(), cache.step({cache.add(): len(ids)}) as view:
            found.append((ids, model.tapped(ids, view, taps)[1].clone()))
    return found
