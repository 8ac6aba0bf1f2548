"""How much memory a cache may take where nobody said: what a GPU has left beside the weights and the largest step."""

from __future__ import annotations

from typing import Callable

import torch

from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.engine.depths import FARTHEST
from kvedu.engine.pages import paged_cache_for
from kvedu.engine.scores import AT_ONCE
from kvedu.errors import CacheFull, RequestError
from kvedu.kernels.transfer import put
from kvedu.model.draw_rows import Draw, draw_rows
from kvedu.model.sampling import Sampler, Sampling
from kvedu.model.transformer import Transformer
from kvedu.speculative.proposer import Proposer
from kvedu.units import GiB


GUESSES = 4
"""Guesses of each sequence that a step is to have room for: any request may come with some."""


def guesses_of(proposer: Proposer | None) -> int:
    """Guesses of each sequence that a step has room for where this proposer guesses for all: as deep as it goes, and no fewer than ``GUESSES``."""
    return GUESSES if proposer is None else max(GUESSES, proposer.deepest or FARTHEST)


class DeviceMemory:
    """What a GPU says of its memory, in bytes; on any kind of it that PyTorch counts for."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def free(self) -> int:
        """What nobody holds, this process and others."""
        torch.accelerator.empty_cache()
        return torch.get_device_module(self.device).mem_get_info(self.device)[0]

    def peak(self, work: Callable[[], None]) -> int:
        """What ``work`` takes at its largest, beyond what is held before."""
        torch.accelerator.synchronize(self.device)
        torch.accelerator.reset_peak_memory_stats(self.device)
        before = torch.accelerator.memory_allocated(self.device)
        work()
        torch.accelerator.synchronize(self.device)
        return torch.accelerator.max_memory_allocated(self.device) - before


def measured_cache_bytes(
    model: Transformer,
    *,
    share: float = 0.9,
    page_size: int = 16,
    kv_format: KVFormat | None = None,
    max_running: int = 64,
    token_budget: int = 512,
    guesses: int = GUESSES,
) -> int:
    """Bytes for the cache: ``share`` of the memory that is free, less what the largest step takes while it runs.

    The step is run: ``token_budget`` tokens of ``max_running`` sequences through the model, a token drawn for each, beside logits of
    ``guesses`` more for each (as many as the tokens allow) or of a piece of a prompt that is scored. What is left of the memory is
    for recordings, and for what is allocated in pieces. Raises ``RequestError`` on a CPU and for a share that is none, ``CacheFull``
    where nothing would be left.
    """
    if _on_cpu(model):
        raise RequestError("cache_bytes=None measures the memory of a GPU; on a CPU say how many bytes the cache may take")
    if not 0 < share <= 1:
        raise RequestError(f"memory_share is a share of the free memory, more than 0 and at most 1, not {share}")
    memory = DeviceMemory(model.device)
    free = memory.free()
    sequences = min(max_running, token_budget)
    step = memory.peak(lambda: largest_step(model, sequences, token_budget, page_size, guesses))
    if kv_format is None:  # its pages are no part of what it takes; over codes, what came stays until the step has ended
        step -= _pages(sequences, token_budget, page_size) * page_size * kv_bytes_per_token(model.config, model.dtype.itemsize)
    left = int(share * free) - step
    if left < page_size * kv_bytes_per_token(model.config, model.dtype.itemsize):
        raise CacheFull(
            f"{free / GiB:.2f} GiB of memory are free beside the weights; {share:.0%} of that, less {step / GiB:.2f} GiB for a step of "
            f"{token_budget} tokens of {sequences} sequences, leaves no page. Make the steps smaller (token_budget, max_running), free memory, "
            "or say cache_bytes"
        )
    return left


def _on_cpu(model: Transformer) -> bool:
    return model.device.type == "cpu"


def _pages(sequences: int, tokens: int, page_size: int) -> int:
    return sequences * -(-(-(-tokens // sequences)) // page_size)


@torch.inference_mode()
def largest_step(model: Transformer, sequences: int, tokens: int, page_size: int, guesses: int = GUESSES) -> None:
    """A step of ``tokens`` tokens of so many sequences over pages of its own, and a token drawn for each of them, all with a penalty.

    Logits are those of all their guesses too, or of as many rows as are scored at once.
    """
    pages = _pages(sequences, tokens, page_size)
    cache_bytes = pages * page_size * kv_bytes_per_token(model.config, model.dtype.itemsize)
    cache: PagedCache = paged_cache_for(model, cache_bytes, page_size, None, None, sequences)
    share, more = divmod(tokens, sequences)
    counts = {cache.add(): share + (i < more) for i in range(sequences)}
    with torch.accelerator.device_index(model.device.index), cache.step(counts) as view:
        hidden_NM = model.hidden(put([0] * tokens, model.device), view)
        logits_RV = model.logits(hidden_NM[: max(sequences * (1 + guesses), AT_ONCE)])
        dear = Sampler(Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.1, seed=0))  # a penalty makes a row float64
        draw_rows([Draw(dear, [0])] * sequences, logits_RV[:sequences])
