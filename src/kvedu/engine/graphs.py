"""Decode steps recorded once and replayed: one launch for a whole step instead of some hundred small ones.

A decode step does the same work every time, over other numbers. So its tensors get addresses that stay:
ids, positions, slots and block tables are copied into them, and the recorded step runs again. A recording fits one
number of sequences and one width of the block table; both are rounded up along a ladder. The rows that fill a
recording up write to a spare page that no sequence ever holds, and nobody reads what they give.

On CUDA a recording is a CUDA graph. ``Again``, which runs the function once more, does for tests without a GPU: the same
buffers, the same padding, the same answers.
"""

from __future__ import annotations

from typing import Callable, Protocol, Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import View
from kvedu.caches.paged import PagedCache, PagedView
from kvedu.errors import CacheError
from kvedu.kernels.paged_attention import PagedLayout, paged_attention, takes
from kvedu.model.transformer import Transformer

LADDER = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of sequences that are recorded; between two of them the larger one runs."""


class Recording(Protocol):
    """A step that can be run again over what its tensors hold then."""

    def replay(self) -> None:
        """Run it; on a GPU, return before it has run."""


Record = Callable[[Callable[[], None]], Recording]
"""How a recording is made from a function without arguments that has run before."""


class Again:
    """A recording that simply calls the function again."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work

    def replay(self) -> None:
        self.work()


def cuda_graph(work: Callable[[], None]) -> Recording:
    """A CUDA graph of the work, which runs a few times first, so that nothing is compiled or allocated while it is recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


class SteadyView(View):
    """A decode step over tensors that keep their addresses: B rows of one token, tables of J pages."""

    def __init__(self, cache: PagedCache, batch: int, width: int) -> None:
        super().__init__(cache, ())
        assert cache.spare_page is not None
        self.spare = cache.spare_page
        self.batch, self.width = batch, width
        ints = {"dtype": torch.int64, "device": cache.device}
        self.ids, self.positions, self.slot_mapping = (torch.zeros(batch, **ints) for _ in range(3))
        tables = torch.zeros(batch, width, dtype=torch.int32, device=cache.device)
        self.layout = PagedLayout(tables, torch.zeros(batch, 3, **ints))

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        return paged_attention(q_NHD, self.cache.k[layer], self.cache.v[layer], self.layout, self.window(layer))

    def load(self, ids: Sequence[int], view: PagedView) -> None:
        """Copy a step's numbers in; rows beyond it read and write the spare page alone."""
        idle = self.batch - len(ids)
        tables = [self.cache.tables.tables[row.seq] for row in view.rows] + [[self.spare]] * idle
        held = [row.start for row in view.rows] + [0] * idle
        slots = [s for row in view.rows for s in self.cache.tables.slots(row.seq, row.start, row.total)]
        slots += [self.spare * self.cache.page_size] * idle
        positions = [p for row in view.rows for p in row.new] + [0] * idle
        _put(self.ids, [*ids, *[0] * idle])
        _put(self.positions, positions)
        _put(self.slot_mapping, slots)
        _put(self.layout.tables, [[*table, *[0] * (self.width - len(table))] for table in tables])
        _put(self.layout.rows, [[row, 1, old] for row, old in enumerate(held)])

    def begin(self) -> None:
        """Forget what the step before left: every layer is appended anew, the angles are computed anew."""
        self.appended.clear()
        self._turn = None


def _put(target: Tensor, values: list) -> None:
    """Copy numbers to where they stay; on a GPU through pinned memory, so that nobody waits."""
    source = torch.tensor(values, dtype=target.dtype)
    target.copy_(source.pin_memory() if target.is_cuda else source, non_blocking=True)


class DecodeGraphs:
    """The recordings of one model over one paged cache, made when they are first wanted.

    The cache must have a spare page (``PagedCache(spare=True)``). ``record`` None takes CUDA graphs on CUDA.
    Raises ``CacheError`` for a cache without a spare page, or of a kind whose pages hold codes.
    """

    def __init__(self, model: Transformer, cache: PagedCache, *, ladder: Sequence[int] = LADDER, record: Record | None = None) -> None:
        if type(cache) is not PagedCache or cache.spare_page is None:
            raise CacheError(f"recorded steps need a PagedCache with a spare page; got {type(cache).__name__}; make it with spare=True")
        self.model, self.cache, self.ladder = model, cache, tuple(sorted(ladder))
        self.record: Record = cuda_graph if record is None else record
        self._made: dict[tuple[int, int], tuple[SteadyView, Recording, Tensor]] = {}

    @property
    def recorded(self) -> tuple[tuple[int, int], ...]:
        """Sequences and width of the tables of each recording."""
        return tuple(self._made)

    def takes(self, view: PagedView) -> bool:
        """Whether a step can be replayed: one token of each sequence, no tree, no gap, not more than the ladder has."""
        steady = all(row.count == 1 and row.parents is None and row.gapless for row in view.rows)
        return steady and 0 < len(view.rows) <= self.ladder[-1] and self.cache.config.rope.switch_length is None

    def logits(self, ids: Sequence[int], view: PagedView) -> Tensor:
        """Logits ``[B, V]`` of a step that ``takes`` accepts; they stand there until the next replay of this size."""
        batch = next(rung for rung in self.ladder if rung >= len(ids))
        width = _at_least(max(len(self.cache.tables.tables[row.seq]) for row in view.rows))
        if (batch, width) not in self._made:
            self._made[batch, width] = self._make(batch, width, ids, view)
        steady, recording, logits_BV = self._made[batch, width]
        steady.load(ids, view)
        recording.replay()
        view.appended.update(range(self.cache.n_layers))
        return logits_BV[: len(ids)]

    def _make(self, batch: int, width: int, ids: Sequence[int], view: PagedView) -> tuple[SteadyView, Recording, Tensor]:
        steady = SteadyView(self.cache, batch, width)
        steady.load(ids, view)
        logits_BV = torch.empty(batch, self.model.config.V, dtype=self.model.dtype, device=self.model.device)

        def work() -> None:
            steady.begin()
            logits_BV.copy_(self.model.logits(self.model.hidden(steady.ids, steady)))

        work()
        return steady, self.record(work), logits_BV


def _at_least(pages: int) -> int:
    """Widths are powers of two, so that a growing sequence seldom needs another recording."""
    return 1 << max(pages - 1, 0).bit_length()


def usable(model: Transformer, cache: PagedCache) -> bool:
    """Whether recordings pay and can be made here: on CUDA, where the paged kernel takes this model's heads."""
    if model.device.type != "cuda" or type(cache) is not PagedCache:
        return False
    q_NHD = torch.empty(1, model.config.H, model.config.D, dtype=model.dtype, device=model.device)
    return takes(q_NHD, cache.k[0])
