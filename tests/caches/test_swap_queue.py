"""Swapping joins the queue of a GPU: no copy that the host must wait for, pages side by side in one, later ones after earlier ones."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cache_cases import feed
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.caches.paged_quantized import PagedQuantizedCache
from tiny import random_ids, tiny_config

KIVI = KVFormat.kivi(bits=2, group=4, residual=4)


class Copies(TorchDispatchMode):
    """Sees what is copied: into what is there (whether the host may go on, how many rows), or into ordinary memory."""

    def __init__(self):
        super().__init__()
        self.rows, self.waits = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        if name.startswith("aten::copy_") and (args[2:] == (True,) or (kwargs or {}).get("non_blocking")):
            self.rows.append(len(args[0]))
        elif name.startswith(("aten::copy_", "aten::_to_copy", "aten::to.")):
            self.waits.append(name)
        return func(*args, **(kwargs or {}))


def cache_of(format):
    config = tiny_config(L=2)
    if format is None:
        return PagedCache(config, n_pages=12, page_size=4)
    return PagedQuantizedCache(config, format=format, n_pages=12, page_size=4, max_sequences=3)


@pytest.mark.parametrize("format", [None, KIVI], ids=["as they come", "kivi"])
def test_nothing_is_waited_for(format):
    """Three pages side by side are one copy of each tensor; where there is a gap, two."""
    cache = cache_of(format)
    space, tensors = cache.swap_space(10**6), len(cache.page_tensors)
    tails = 0 if format is None else len(cache.tails.tensors)
    a, b = cache.add(), cache.add()
    feed(cache, {a: random_ids(12), b: random_ids(3)})
    with Copies() as copies:
        parked, _ = space.out(a)
        assert (copies.waits, len(copies.rows), copies.rows[:tensors]) == ([], tensors + tails, [3] * tensors)
        space.back(parked)
    assert (copies.waits, len(copies.rows)) == ([], 2 * (tensors + tails))
    [a] = [seq for seq in cache.sequences if seq != b]
    places = space.pages._free
    places[-3:] = [2, 6, 3]  # the next ones, the last first: 3, 6 and 2
    with Copies() as copies:
        space.out(a)
    assert (copies.waits, copies.rows[: 2 * tensors], len(copies.rows)) == ([], [2, 1] * tensors, 2 * tensors + tails)


@pytest.mark.parametrize("format", [None, KIVI], ids=["as they come", "kivi"])
def test_each_swap_follows_the_ones_before(monkeypatch, format):
    """A host page may be taken by the next sequence at once: who writes or reads it comes later, in whatever stream."""
    said = []

    class Event:
        def __init__(self, device):
            self.number = sum(word == "record" for word, _ in said)

        def record(self):
            said.append(("record", self.number))

        def wait(self):
            said.append(("wait", self.number))

    monkeypatch.setattr(torch, "Event", Event)
    cache = cache_of(format)
    space = cache.swap_space(10**6)
    space._queues = True
    seq = cache.add()
    feed(cache, {seq: random_ids(9)})
    for _ in range(2):
        parked, _ = space.out(seq)
        seq, _ = space.back(parked)
    blocks = 4 if format is None else 8
    assert said == [("record", 0)] + [(word, i + (word == "record")) for i in range(blocks - 1) for word in ("wait", "record")]
