"""The cache contract: what every cache promises to the model, the engine and the reader.

A cache owns sequences. ``add`` opens one, ``step`` takes in new tokens of any of them in
one forward pass, ``truncate`` and ``keep`` take tokens away, ``fork`` copies, ``free`` closes.
The model never sees a cache, only the *view* of the step it is in::

    seq = cache.add()
    with cache.step({seq: len(prompt)}) as view:
        logits = model(prompt_ids, view)

Leaving the block commits the lengths, once; an exception inside leaves the cache as it was.
A subclass says where tokens live (the ``_`` methods at the end) and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from kvedu.caches.layout import Row, plan
from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import CacheError


class Cache(ABC):
    """Base of all caches: sequences and their lengths; subclasses own the tensors.

    ``config`` gives K, D, RoPE and windows; ``dtype`` and ``device`` are told, never guessed.
    ``first_layer`` and ``n_layers`` are for a pipeline stage that holds only some layers. Layers are those that
    have keys and values of their own (``config.kv_layers``): one that reads another's has no place here.

    Raises ``CacheError`` for a model whose values are not as wide as its keys, where the layout has one width.
    """

    view: type[View] = View
    pre_rope: bool = False
    """Keys are stored as projected and rotated when they are attended to; else stored rotated."""
    any_value_width: bool = False
    """Values may be wider or narrower than keys, as latents have them."""
    exceptions: Mapping[str, str] = {}
    """Laws that this cache cannot keep, each with the reason (see ``tests/laws``)."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        first_layer: int = 0,
        n_layers: int | None = None,
    ) -> None:
        self.config, self.dtype, self.device = config, dtype, torch.device(device)
        self.first_layer = first_layer
        self.n_layers = len(config.kv_layers) - first_layer if n_layers is None else n_layers
        self.model_layers = config.kv_layers[first_layer : first_layer + self.n_layers]
        if config.Dv != config.D and not self.any_value_width:
            raise CacheError(
                f"{type(self).__name__} stores keys and values of one width, and this model's keys have {config.D} elements, its "
                f"values {config.Dv}; use LatentCache, which stores its latents once, or ConcatCache"
            )
        self._positions: dict[int, list[int]] = {}
        self._next_id = 0
        self._stepping = False

    # -- lifecycle -----------------------------------------------------------------------------

    @property
    def sequences(self) -> tuple[int, ...]:
        """Ids of the sequences that are open."""
        return tuple(self._positions)

    def add(self) -> int:
        """Open an empty sequence and return its id. Raises ``CacheFull`` where there is no room for one."""
        self._idle("add")
        return self._open([], None)

    def fork(self, seq: int) -> int:
        """Open a copy of a sequence; the two then grow apart."""
        self._known(seq, "fork")
        return self._open(self._positions[seq], seq)

    def free(self, seq: int) -> None:
        """Close a sequence and give back what it held. A second free is a ``CacheError``."""
        self._known(seq, "free")
        self._drop(seq)
        del self._positions[seq]

    def length(self, seq: int) -> int:
        """Committed tokens of a sequence: those it holds."""
        self._known(seq, None)
        return len(self._positions[seq])

    def seen(self, seq: int) -> int:
        """How far into its text a sequence is: the position of its next token. Beyond ``length`` where tokens were let go."""
        self._known(seq, None)
        return self._positions[seq][-1] + 1 if self._positions[seq] else 0

    def truncate(self, seq: int, length: int) -> None:
        """Forget all but the first ``length`` tokens, in every layer, as if the rest had never come."""
        self._known(seq, "truncate")
        if not 0 <= length <= len(self._positions[seq]):
            raise CacheError(f"cannot truncate sequence {seq} of {len(self._positions[seq])} tokens to {length}")
        self._shrink(seq, length)
        del self._positions[seq][length:]

    def keep(self, seq: int, indices: Sequence[int]) -> None:
        """Keep only these tokens of a sequence (ascending indices); they keep their positions.

        A tree's accepted path, or what an eviction policy spares. The next token follows the last one kept.
        """
        self._known(seq, "keep")
        old = self._positions[seq]
        if any(not 0 <= i < len(old) for i in indices) or any(a >= b for a, b in zip(indices, indices[1:])):
            raise CacheError(f"keep() wants ascending indices below {len(old)}, got {list(indices)[:8]} ...")
        self._compact(seq, list(indices))
        self._positions[seq] = [old[i] for i in indices]

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held: the sum of the sizes of all distinct storages."""

    def room(self, seq: int) -> int | None:
        """Tokens that this sequence can still take, or None if only memory limits it."""
        return None

    # -- one forward pass ----------------------------------------------------------------------

    @contextmanager
    def step(
        self, counts: Mapping[int, int], parents: Mapping[int, Sequence[int]] | None = None
    ) -> Iterator[View]:
        """One forward pass over ``counts`` new tokens per sequence; ``parents`` makes some of them trees.

        Raises ``CacheError`` before anything is written when the step makes no sense and
        ``CacheFull`` when it does not fit. On leaving, lengths are committed; after an exception
        in the block, or if the model skipped a layer, everything is as before.
        """
        self._idle("step")
        rows = plan(counts, self._positions, parents)
        self._check_switch(rows)
        self._reserve(rows)
        self._stepping = True
        view = self.view(self, rows)
        try:
            yield view
            missing = sorted(set(range(self.n_layers)) - view.appended)
            if missing:
                raise CacheError(f"layers {missing} got no keys in this step; the step is undone")
        except BaseException:
            self._rollback(view)
            raise
        else:
            self._commit(view)
        finally:
            self._stepping = False

    def _check_switch(self, rows: tuple[Row, ...]) -> None:
        """Refuse to mix keys rotated with one set of frequencies and queries rotated with another."""
        switch = self.config.rope.switch_length
        if switch is None:
            return
        for row in rows:
            every_step = self.config.rope.kind == "dynamic"  # its frequencies change with each token past the switch
            if row.start and row.end_position > switch and (every_step or row.committed[-1] < switch):
                raise CacheError(
                    f"sequence {row.seq} would grow to {row.end_position} tokens; past {switch} the "
                    f"{self.config.rope.kind} RoPE changes its frequencies and the {row.start} cached keys would be "
                    "wrong. Truncate to 0 and run the whole sequence in one step, or generate without a cache"
                )

    def _commit(self, view: View) -> None:
        for row in view.rows:
            self._positions[row.seq].extend(row.new)

    def _rollback(self, view: View) -> None:
        for row in view.rows:
            self._shrink(row.seq, row.start)

    # -- checks --------------------------------------------------------------------------------

    def _open(self, positions: Sequence[int], source: int | None) -> int:
        seq = self._next_id
        self._allocate(seq, source)
        self._next_id += 1
        self._positions[seq] = list(positions)
        return seq

    def _known(self, seq: int, action: str | None) -> None:
        if seq not in self._positions:
            raise CacheError(f"sequence {seq} is not in this cache; open ones: {list(self._positions)[:16]}")
        if action:
            self._idle(action)

    def _idle(self, action: str) -> None:
        if self._stepping:
            raise CacheError(f"{action}() inside a step: leave the `with cache.step(...)` block first")

    # -- what a layout implements --------------------------------------------------------------

    @abstractmethod
    def _allocate(self, seq: int, source: int | None) -> None:
        """Make room for a new sequence, empty or a copy of ``source``; raise ``CacheFull`` if there is none."""

    @abstractmethod
    def _drop(self, seq: int) -> None:
        """Give back everything that a sequence holds."""

    def _reserve(self, rows: tuple[Row, ...]) -> None:
        """Make sure that the step fits, or raise ``CacheFull`` before anything is written."""

    @abstractmethod
    def _write(self, view: View, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        """Store the step's keys and values of one layer after the committed ones."""

    @abstractmethod
    def _read(self, layer: int, seq: int, length: int) -> tuple[Tensor, Tensor]:
        """First ``length`` keys and values of a sequence, ``[S, K, D]`` each."""

    @abstractmethod
    def _shrink(self, seq: int, length: int) -> None:
        """Forget all but the first ``length`` tokens in every layer (also after a half-done step)."""

    @abstractmethod
    def _compact(self, seq: int, indices: list[int]) -> None:
        """Keep only these tokens, in this order, in every layer."""


def storage_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes of the distinct storages under these tensors, each counted once however many views it has."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
