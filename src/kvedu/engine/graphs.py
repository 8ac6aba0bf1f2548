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

from kvedu.caches.paged import PagedCache, PagedView
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.quantized_view import QuantizedPagedView
from kvedu.engine.steady import SteadyCodes, SteadyView
from kvedu.errors import CacheError
from kvedu.kernels.paged_attention import takes
from kvedu.kernels.quantized_attention import takes as codes_taken
from kvedu.kernels.quantized_pages import Exact
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


def cuda_graph(work: Callable[[], None], pool: Any = None) -> Recording:
    """A CUDA graph of the work, which runs a few times first, so that nothing is compiled or allocated while it is recorded.

    Recordings of one ``pool`` share the memory of what they compute on the way: never two of them run at once.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        work()
    return graph


class DecodeGraphs:
    """The recordings of one model over one paged cache, made when they are first wanted.

    The cache must have a spare page (``spare=True``). ``record`` None takes CUDA graphs on CUDA. ``fused`` as for
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
        self.model, self.cache, self.ladder = model, cache, tuple(sorted(ladder))
        self.record: Record = partial(cuda_graph, pool=torch.cuda.graph_pool_handle()) if record is None else record
        self._kernel = not isinstance(cache, PagedQuantizedCache) or _reads_codes(model, cache)
        self.fused = fused
        self._made: dict[tuple[int, int], tuple[SteadyView, Recording, Tensor]] = {}

    @property
    def recorded(self) -> tuple[tuple[int, int], ...]:
        """Sequences and width of the tables of each recording."""
        return tuple(self._made)

    def takes(self, view: PagedView | QuantizedPagedView) -> bool:
        """Whether a step can be replayed: one token of each sequence, no tree, no gap, not more than the ladder has. And a kernel must
        read the pages as they are: codes that are decoded first are decoded by the host's leave."""
        steady = self._kernel and all(row.count == 1 and row.parents is None and row.gapless for row in view.rows)
        return steady and 0 < len(view.rows) <= self.ladder[-1] and self.cache.config.rope.switch_length is None

    def logits(self, ids: Sequence[int] | Tensor, view: PagedView | QuantizedPagedView) -> Tensor:
        """Logits ``[B, V]`` of a step that ``takes`` accepts; they stand there until the next replay of this size.

        ``ids`` may be a tensor on the device, of which the host knows nothing.
        """
        batch = next(rung for rung in self.ladder if rung >= len(ids))
        width = _at_least(max(len(self.cache.tables.tables[row.seq]) for row in view.rows))
        made = (batch, width) in self._made
        steady, recording, logits_BV = self._made[batch, width] if made else self._make(batch, width, ids, view)
        steady.load(ids, view.rows)
        recording.replay()
        view.appended.update(range(self.cache.n_layers))
        return logits_BV[: len(ids)]

    def _make(self, batch: int, width: int, ids: Sequence[int] | Tensor, view: PagedView) -> tuple[SteadyView, Recording, Tensor]:
        steady = _STEADY[type(self.cache)](self.cache, batch, width)
        steady.load(ids, view.rows)
        logits_BV = torch.empty(batch, self.model.config.V, dtype=self.model.dtype, device=self.model.device)

        def work() -> None:
            steady.begin()
            logits_BV.copy_(self.model.logits(self.model.hidden(steady.ids, steady, fused=self.fused)))
            steady.end()

        work()
        self._made[batch, width] = steady, self.record(work), logits_BV
        return self._made[batch, width]


def _reads_codes(model: Transformer, cache: PagedQuantizedCache) -> bool:
    """Whether a kernel attends over the cache's codes where they lie."""
    if not cache.fused or not cache.pages:
        return False
    where = {"dtype": cache.dtype, "device": cache.device}
    config = model.config
    q_NHD = torch.empty(1, config.H, config.D, **where)
    exact = [Exact(torch.empty(1, config.K, config.D, **where), tails) for tails in cache.tails[0]]
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
