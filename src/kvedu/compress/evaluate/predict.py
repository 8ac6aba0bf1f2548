"""Prediction through a cache: loss of each token, and how far the predictions are from the full cache's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from kvedu.caches.concat import ConcatCache
from kvedu.compress.evaluate.feed import MakeCache, checked, in_chunks, made
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer


@torch.inference_mode()
def losses_through(
    model: Transformer,
    ids: Sequence[int],
    make: MakeCache,
    *,
    chunk: int | None = 16,
    window: int | None = None,
    stride: int | None = None,
) -> Tensor:
    """Negative log-likelihood, in nats, of each token but the first, read through a cache: fp32 ``[len(ids) - 1]``.

    Without a ``window`` the text is one sequence of the cache, however long. With one, a window of so many
    tokens slides over it by ``stride`` (default: half), each in a sequence of its own; a token is scored
    once, in the first window that holds it, as in ``compress.perplexity``, whose numbers a ``NoCache``
    gives with ``chunk=None``. ``chunk`` tokens come in one step (see ``in_chunks``): a smaller one is
    closer to decoding and slower. Raises ``RequestError`` for texts, windows and strides that score nothing.
    """
    ids = checked(model, ids, 2)
    window = len(ids) if window is None else window
    stride = max(1, window // 2) if stride is None else stride
    if not 1 <= stride < window:
        raise RequestError(f"stride must be at least 1 and less than the window, not {stride} with a window of {window}")
    cache, losses, scored = made(model, make), [], 1
    for start in range(0, len(ids), stride):
        if scored >= len(ids):
            break
        seq, read = cache.add(), start
        end = min(start + window, len(ids))
        for hidden_NM in in_chunks(model, cache, seq, ids[start : end - 1], chunk):
            skip = max(0, scored - 1 - read)  # rows whose next token was scored in an earlier window
            read += len(hidden_NM)
            if skip < len(hidden_NM):
                logits_RV = model.logits(hidden_NM[skip:]).to(torch.float32)
                wanted_R = torch.tensor(ids[read - len(logits_RV) + 1 : read + 1], device=model.device)
                losses.append(cross_entropy(logits_RV, wanted_R, reduction="none"))
        scored = end
        cache.free(seq)
    return torch.cat(losses).cpu()


def perplexity_through(model: Transformer, ids: Sequence[int], make: MakeCache, **how) -> float:
    """exp of the mean loss through a cache; arguments, cost and errors as in ``losses_through``."""
    return math.exp(losses_through(model, ids, make, **how).mean(dtype=torch.float64).item())


@dataclass(frozen=True)
class Prediction:
    """A cache's predictions on a text beside the full cache's.

    ``kl`` is the mean over the tokens of KL(full || this), in nats: 0 where nothing changed. ``agreement`` is the share of
    tokens at which both think the same token most likely.
    """

    perplexity: float
    full_perplexity: float
    kl: float
    agreement: float

    @property
    def loss(self) -> float:
        """Relative loss of perplexity: 0.01 is one percent more than the full cache's."""
        return self.perplexity / self.full_perplexity - 1


@torch.inference_mode()
def predictions(
    model: Transformer, ids: Sequence[int], makes: Mapping[str, MakeCache], *, chunk: int | None = 16
) -> dict[str, Prediction]:
    """Several caches read one text in the same steps as a full cache, which is run once for all of them.

    Cost: one forward pass over the text for each cache and one more. Memory: two chunks of logits, and all the caches.
    """
    ids = checked(model, ids, 2)
    full = ConcatCache(model.config, dtype=model.dtype, device=model.device)
    caches = {name: made(model, make) for name, make in makes.items()}
    streams = {name: in_chunks(model, cache, cache.add(), ids[:-1], chunk) for name, cache in caches.items()}
    sums = {name: torch.zeros(3, dtype=torch.float64) for name in makes}  # loss, KL, agreements
    full_loss, read = 0.0, 1
    for hidden_NM in in_chunks(model, full, full.add(), ids[:-1], chunk):
        wanted_N = torch.tensor(ids[read : read + len(hidden_NM)], device=model.device)
        read += len(hidden_NM)
        full_NV = log_softmax(model.logits(hidden_NM).to(torch.float32), -1)
        full_loss += _nll(full_NV, wanted_N)
        for name, stream in streams.items():
            this_NV = log_softmax(model.logits(next(stream)).to(torch.float32), -1)
            kl = (full_NV.exp() * (full_NV - this_NV)).sum(-1).clamp(min=0).sum().item()
            same = (full_NV.argmax(-1) == this_NV.argmax(-1)).sum().item()
            sums[name] += torch.tensor([_nll(this_NV, wanted_N), kl, same], dtype=torch.float64)
    n = len(ids) - 1
    found = {name: (total / n).tolist() for name, total in sums.items()}
    return {name: Prediction(math.exp(nll), math.exp(full_loss / n), kl, same) for name, (nll, kl, same) in found.items()}


def kl_to_full(model: Transformer, ids: Sequence[int], make: MakeCache, *, chunk: int | None = 16) -> float:
    """Mean KL(full || this cache) per token of a text, in nats; see ``predictions``."""
    return predictions(model, ids, {"": make}, chunk=chunk)[""].kl


def _nll(logp_NV: Tensor, wanted_N: Tensor) -> float:
    return -logp_NV.gather(1, wanted_N[:, None]).sum(dtype=torch.float64).item()
