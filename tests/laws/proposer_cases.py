"""Every proposer under the laws: a new one joins with one line in ``PROPOSERS``."""

from __future__ import annotations

from typing import Callable

import torch

from kvedu.model.transformer import Transformer
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.eagle import Eagle
from kvedu.speculative.eagle_tree import EagleTree
from kvedu.speculative.first_layers import first_layers
from kvedu.speculative.lookahead import Lookahead
from kvedu.speculative.ngram import NGram
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.quantized_twin import quantized_twin
from kvedu.speculative.reduced_draft import reduce_head
from tiny import tiny_config, tiny_model
from tiny_heads import eagle, medusa, most_of, mtp


def near(model: Transformer, noise: float = 0.03) -> Transformer:
    """A model whose weights are close to another's: often right, often wrong."""
    twin, generator = tiny_model(model.config), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for ours, theirs in zip(twin.parameters(), model.parameters()):
            ours.copy_(theirs + noise * torch.randn(theirs.shape, generator=generator))
    return twin


def stranger(model: Transformer) -> Transformer:
    """A smaller model that agrees with another on the vocabulary and on nothing else."""
    return tiny_model(tiny_config(H=2, K=1, L=1, V=model.config.V), seed=9)


def grown(chain: Eagle, model: Transformer, k: int) -> EagleTree:
    """The same head, guessing trees."""
    return EagleTree(chain.head, chain.reduced.vocabulary, model, depth=k, width=2, nodes=k + 2)


PROPOSERS: dict[str, Callable[[Transformer, int], Proposer]] = {
    "n-gram": lambda model, k: NGram(k),
    "draft: near": lambda model, k: DraftModel(near(model), k),
    "draft: stranger": lambda model, k: DraftModel(stranger(model), k),
    "draft: itself": lambda model, k: DraftModel(model, k),
    "first layers": lambda model, k: DraftModel(first_layers(model, model.config.L - 1), k),
    "quantized twin": lambda model, k: DraftModel(quantized_twin(model), k),
    "tree: near": lambda model, k: DraftTree(near(model), (2, *[1] * (k - 1))),
    "tree: stranger": lambda model, k: DraftTree(stranger(model), (3, 2, 2)[:k]),
    "draft: reduced": lambda model, k: DraftModel(reduce_head(near(model), most_of(model)), k, vocabulary=most_of(model)),
    "eagle": lambda model, k: eagle(model, k),
    "eagle: three taps": lambda model, k: eagle(model, k, (1, 2, 2)),
    "eagle tree": lambda model, k: grown(eagle(model, k), model, k),
    "medusa": lambda model, k: medusa(model, k),
    "medusa tree": lambda model, k: medusa(model, k, (2,) * min(k, 3)),
    "mtp": lambda model, k: mtp(model, k),
    "lookahead": lambda model, k: Lookahead(width=k + 1, n=3, guesses=3),
}
"""Name to a maker: target and how far to guess."""
