"""A draft model that scores only the frequent tokens."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from kvedu.errors import RequestError
from kvedu.model.layers import Linear
from kvedu.model.transformer import Transformer
from kvedu.speculative.vocabulary import DraftVocabulary


def reduce_head(model: Transformer, vocabulary: DraftVocabulary) -> Transformer:
    """The model with the ``vocabulary``'s R rows of its head, a copy; every other weight is shared. Logits are ``[N, R]``.

    Its input is still any of the V tokens. Packed where the model is. Raises ``RequestError`` for another number of ids.
    """
    config = model.config
    if vocabulary.V != config.V:
        raise RequestError(f"the vocabulary is {len(vocabulary)} of {vocabulary.V} token ids, the model has {config.V}")
    with torch.device("meta"):
        reduced = Transformer(replace(config, tied=False))
    reduced.embed, reduced.layers, reduced.norm, reduced.tokenizer = model.embed, model.layers, model.norm, model.tokenizer
    reduced.head = Linear(config.M, len(vocabulary))
    reduced.head.weight = nn.Parameter(vocabulary.rows(model.head.plain_weight().detach()).clone(), requires_grad=False)
    if model.head.packed is not None:
        reduced.head.pack()
    return reduced.train(model.training)
