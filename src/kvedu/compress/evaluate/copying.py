"""Copying through a cache: the second time a text comes, each token could be looked up in the first.

Natural text is copied with the help of everything the model knows; random tokens only by an induction
head that finds the same token earlier and reads what came after it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Sequence

import torch
from torch.nn.functional import cross_entropy

from kvedu.compress.evaluate.feed import MakeCache, checked, in_chunks, made
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer


@dataclass(frozen=True)
class Copied:
    """Share of the repeated tokens that came out most likely, and their mean loss in nats."""

    accuracy: float
    loss: float


@torch.inference_mode()
def copied(
    model: Transformer, texts: Sequence[Sequence[int]], make: MakeCache, *, first: int | None = None, chunk: int | None = 1
) -> Copied:
    """Each text twice through a cache, the second time scored, but for its first token, which nothing announces.

    The first copy comes in one step (``first``: so many tokens at a time), the second ``chunk`` tokens at a time.
    Raises ``RequestError`` for no texts or texts of fewer than two tokens.
    """
    if not texts:
        raise RequestError("no texts: an accuracy of nothing is not 0")
    cache, rights, losses = made(model, make), [], []
    for text in texts:
        ids, seq, read = checked(model, text, 2), cache.add(), 1
        for _ in in_chunks(model, cache, seq, ids, first):
            pass
        for hidden_NM in in_chunks(model, cache, seq, ids[:-1], chunk):
            logits_NV = model.logits(hidden_NM).to(torch.float32)
            wanted_N = torch.tensor(ids[read : read + len(logits_NV)], device=model.device)
            read += len(logits_NV)
            rights.append(logits_NV.argmax(-1) == wanted_N)
            losses.append(cross_entropy(logits_NV, wanted_N, reduction="none"))
        cache.free(seq)
    return Copied(torch.cat(rights).double().mean().item(), torch.cat(losses).double().mean().item())


def random_tokens(vocabulary: int, length: int, *, lowest: int = 0, seed: int = 0) -> list[int]:
    """``length`` different ids from ``lowest`` up, in an order drawn from the seed: nothing to copy by but their order."""
    if length > vocabulary - lowest:
        raise RequestError(f"there are {vocabulary - lowest} ids to draw from, and {length} different ones are wanted")
    return random.Random(seed).sample(range(lowest, vocabulary), length)
