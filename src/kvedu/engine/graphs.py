"""Decode steps recorded once and replayed: one launch for a whole step instead of some hundred small ones.

A decode step does the same work every time, over other numbers. So its tensors get addresses that stay:
ids, positions, slots and block tables are copied into them, and the recorded step runs again. A recording fits one
number of sequences and one width of the block table; both are rounded up along a ladder. The rows that fill a
recording up write to a spare page that no sequence ever holds, and nobody reads what they give.

On CUDA a recording is a CUDA graph. ``Again``, which runs the function once more, does for tests without a GPU: the same
buffers, the same padding, the same answers.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Protocol, Sequence

import torch
from torch import Tensor

from kvedu.caches.layout import Row
from kvedu.caches.paged import PagedCache, PagedView
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.quantized_view import QuantizedPagedView
from kvedu.engine.steady import SteadyCodes, SteadyView
from kvedu.errors import CacheError
from kvedu.kernels.paged_attention import takes
from kvedu.kernels.quantized_attention import takes as codes_taken
from kvedu.kernels.quantized_pages import Exact
from kvedu.kernels.transfer import put
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


def cuda_graph(work: Callable[[], None], pool: Any = None, stream: Any = None, device: torch.device | None = None) -> Recording:
    """A CUDA graph of the work, which runs a few times first, so that nothing is compiled or allocated while it is recorded.

    Recordings of one ``pool`` and one ``stream`` share the memory of what they compute on the way: never two of them run at once.
    ``device`` None is the current one. What other threads do meanwhile disturbs nothing.
    """
    with torch.cuda.device(device):
        side, graph = stream or torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                work()
            with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                work()
        torch.cuda.current_stream().wait_stream(side)
    return graph


class DecodeGraphs:
    """The recordings of one model over one paged cache, made when they are first wanted.

    The cache must have a spare page (``spare=True``). Rungs of the ladder whose rows no kernel takes are left out; where memory does not
    suffice for a recording, its steps are run as they are. ``record`` None takes CUDA graphs on CUDA. ``fused`` as for
    ``Transformer.tapped``: fewer launches of the same step; None: on a GPU.
    Raises ``CacheError`` for a cache without a spare page, or of a kind that has none.
    """

    def __init__(
        self,
        model: Transformer,
        cache: PagedCache,
        *,
        ladder: Sequence[int] = LADDER,
        record: Record | None = None,
        fused: bool | None = None,
    ) -> None:
        if type(cache) not in _STEADY or cache.spare_page is None:
            raise CacheError(f"recorded steps need a cache of pages with a spare one; got {type(cache).__name__}; make it with spare=True")
        if isinstance(cache, PagedQuantizedCache) and cache.window_kept and cache.window_kept == cache.format.tail:
            raise CacheError("a step runs several times before it is recorded, so a tail must keep a token more than is seen; give undo=1 or more")
        self.model, self.cache, self.fused = model, cache, fused
        self.ladder = tuple(rung for rung in sorted(ladder) if _reads(model, cache, rung))
        if not isinstance(cache, PagedQuantizedCache) and not _reads(model, cache, 1):
            self.ladder = tuple(sorted(ladder))  # no kernel here: pages are read by gathering, for tests and for reading
        self.record: Record = _on_cuda(model.device) if record is None else record
        self._logits_BV: Tensor | None = None
        self._made: dict[tuple[int, int], tuple[SteadyView, Recording] | None] = {}

    @property
    def recorded(self) -> tuple[tuple[int, int], ...]:
        """Sequences and width of the tables of each recording."""
        return tuple(pair for pair, made in self._made.items() if made is not None)

    def takes(self, view: PagedView | QuantizedPagedView) -> bool:
        """Whether a step can be replayed: one token of each sequence, no tree, no gap, not more than the ladder has. And a kernel must
        read the pages as they are: codes that are decoded first are decoded by the host's leave."""
        steady = all(row.count == 1 and row.parents is None and row.gapless for row in view.rows)
        return steady and 0 < len(view.rows) <= max(self.ladder, default=0) and self.cache.config.rope.switch_length is None

    def logits(self, ids: Sequence[int] | Tensor, view: PagedView | QuantizedPagedView) -> Tensor:
        """Logits ``[B, V]`` of a step that ``takes`` accepts; they stand there until the next replay.

        ``ids`` may be a tensor on the device, of which the host knows nothing.
        """
        batch = next(rung for rung in self.ladder if rung >= len(ids))
        width = _at_least(max(len(self.cache.tables.tables[row.seq]) for row in view.rows))
        with torch.accelerator.device_index(self.model.device.index):
            if (batch, width) not in self._made:
                self._made[batch, width] = self._make(batch, width, ids, view.rows)
            if self._made[batch, width] is None:
                return self._plain(ids, view)
            steady, recording = self._made[batch, width]
            steady.load(ids, view.rows)
            recording.replay()
        view.appended.update(range(self.cache.n_layers))
        return self._logits_BV[: len(ids)]

    @torch.inference_mode()
    def warm(self, sequences: int, pages: int) -> int:
        """Record now what steps of up to so many sequences want whose longest holds up to so many pages, so that no request waits for it.

        Nobody's pages are touched: all rows are those that fill a recording up. Returns how many recordings there are.
        """
        batches = [rung for i, rung in enumerate(self.ladder) if i == 0 or self.ladder[i - 1] < sequences]
        widths = [1 << i for i in range(_at_least(pages).bit_length())]
        with torch.accelerator.device_index(self.model.device.index):
            for pair in [(batch, width) for batch in reversed(batches) for width in reversed(widths)]:  # the others fit into their memory
                if pair not in self._made:
                    self._made[pair] = self._make(*pair, [], ())
        return len(self.recorded)

    def _plain(self, ids: Sequence[int] | Tensor, view: PagedView) -> Tensor:
        """The same without a recording."""
        return self.model.logits(self.model.hidden(ids if isinstance(ids, Tensor) else put(ids, self.model.device), view))

    def _make(self, batch: int, width: int, ids: Sequence[int] | Tensor, rows: Sequence[Row]) -> tuple[SteadyView, Recording] | None:
        """A recording of this size; None where memory does not suffice. All of them put their logits into the same place."""
        try:
            if self._logits_BV is None:
                where = {"dtype": self.model.dtype, "device": self.model.device}
                self._logits_BV = torch.empty(self.ladder[-1], self.model.config.V, **where)
            steady = _STEADY[type(self.cache)](self.cache, batch, width)
            steady.load(ids, rows)

            def work() -> None:
                steady.begin()
                self._logits_BV[:batch].copy_(self.model.logits(self.model.hidden(steady.ids, steady, fused=self.fused)))
                steady.end()

            work()
            return steady, self.record(work)
        except RuntimeError as error:
            if not _memory_is_out(error):
                raise
            return None


def _on_cuda(device: torch.device) -> Record:
    """CUDA graphs of one model: one pool, one stream, the model's device whatever the thread's is."""
    return partial(cuda_graph, pool=torch.cuda.graph_pool_handle(), stream=torch.cuda.Stream(device), device=device)


def _memory_is_out(error: BaseException | None) -> bool:
    """Whether an error says so, or the one before it: a recording that is broken off raises one of its own."""
    out = isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)
    return error is not None and (out or _memory_is_out(error.__context__))


def _reads(model: Transformer, cache: PagedCache, rows: int) -> bool:
    """Whether a kernel attends over the cache's pages where they lie, in a step of so many rows."""
    config, where = model.config, {"dtype": cache.dtype, "device": cache.device}
    q_NHD = torch.empty(rows, config.H, config.D, **where)
    if not isinstance(cache, PagedQuantizedCache):
        return bool(cache.k) and takes(q_NHD, cache.k[0])
    if not cache.fused or not cache.pages:
        return False
    exact = [Exact(torch.empty(rows, config.K, config.D, **where), tails) for tails in cache.tails[0]]
    return codes_taken(q_NHD, *exact, *cache.pages[0])


_STEADY: dict[type[PagedCache], type[SteadyView]] = {PagedCache: SteadyView, PagedQuantizedCache: SteadyCodes}


def _at_least(pages: int) -> int:
    """Widths are powers of two, so that a growing sequence seldom needs another recording."""
    return 1 << max(pages - 1, 0).bit_length()


MakeGraphs = Callable[[Transformer, PagedCache], DecodeGraphs]


def usable(model: Transformer, cache: PagedCache | None = None) -> bool:
    """Whether recordings pay and can be made here: on CUDA, where the paged kernel takes this model's heads, and no step asks the host anything.

    ``cache``: also whether it is of a kind that can be recorded, and has a spare page.
    """
    config = model.config
    if model.device.type != "cuda" or (cache is not None and (type(cache) not in _STEADY or cache.spare_page is None)):
        return False
    if config.latent is not None or config.rope.switch_length is not None or any(config.has_experts(layer) for layer in range(config.L)):
        return False  # experts are chosen by the host
    q_NHD, k_PCKD = (torch.empty(1, *shape, config.D, dtype=model.dtype, device=model.device) for shape in ((config.H,), (1, config.K)))
    return takes(q_NHD, k_PCKD)


def recorder(model: Transformer, choice: MakeGraphs | bool | None) -> MakeGraphs | None:
    """What makes an engine's recordings, or None: True and False decide, None asks ``usable``, and a function is taken as it is."""
    if choice is None:
        choice = usable(model)
    return (DecodeGraphs if choice else None) if isinstance(choice, bool) else choice
