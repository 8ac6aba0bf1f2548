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
from functools import cached_property
from typing import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from kvedu.caches.layout import Row, plan
from kvedu.config import ModelConfig
from kvedu.errors import CacheError
from kvedu.kernels.attention import attention_reference
from kvedu.kernels.rope import cos_sin, rotate, rotate_pair, rotates_pair
from kvedu.kernels.transfer import move, put


class View:
    """One forward pass over a cache: what the model is handed instead of a global.

    All tensors are ragged: N rows, the new tokens of all sequences of the step one after the other.
    """

    def __init__(self, cache: Cache, rows: tuple[Row, ...]) -> None:
        self.cache, self.rows = cache, rows
        self.appended: set[int] = set()
        self._turn: tuple[Tensor, Tensor] | None = None
        self._visible: dict[tuple[int, int | None], Tensor] = {}

    @cached_property
    def positions(self) -> Tensor:
        """Positions of the new tokens, int64 ``[N]``."""
        return put([p for row in self.rows for p in row.new], self.cache.device)

    @property
    def last_rows(self) -> Tensor:
        """Index ``[B]`` of each sequence's last new token: the rows whose logits choose its next token."""
        return put([row.first + row.count - 1 for row in self.rows], self.cache.device)

    def rotate(self, q_NHD: Tensor, k_NKD: Tensor) -> tuple[Tensor, Tensor]:
        """Turn new queries and keys to their positions (``kernels/rope``); the angles are computed once a step."""
        if rotates_pair(q_NHD, k_NKD):
            return rotate_pair(q_NHD, k_NKD, *self.turn(torch.float32))
        turn = self.turn(q_NHD.dtype)
        return rotate(q_NHD, *turn), rotate(k_NKD, *turn)

    def turn(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """``cos_sin`` of the new tokens' positions."""
        if self._turn is None or self._turn[0].dtype != dtype:
            self._turn = self._angles(dtype)
        return self._turn

    def _angles(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        rope = self.cache.config.rope
        if rope.switch_length is None:
            return cos_sin(rope, self.positions, dtype)
        parts = [cos_sin(rope, self.positions[row.rows], dtype, row.end_position) for row in self.rows]
        return torch.cat([cos for cos, _ in parts]), torch.cat([sin for _, sin in parts])

    def append(self, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        """Take in the new tokens' keys (rotated) and values of one layer; each layer exactly once a step."""
        self._enter(layer, len(k_NKD), len(v_NKD))
        self.cache._write(self, layer, k_NKD, v_NKD)

    def _enter(self, layer: int, n_k: int, n_v: int) -> None:
        """Note that a layer comes; refuse one that is not there, came already, or brings another number of tokens."""
        if not 0 <= layer < self.cache.n_layers:
            raise CacheError(f"layer {layer} does not exist; this cache has layers 0 .. {self.cache.n_layers - 1}")
        if layer in self.appended:
            raise CacheError(f"layer {layer} was already appended in this step")
        if n_k != len(self.positions) or n_v != len(self.positions):
            raise CacheError(f"the step has {len(self.positions)} tokens; got {n_k} keys, {n_v} values")
        self.appended.add(layer)

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        """Attention of the new queries over everything they may see: ``[N, H, Dv]``. A layout's own kernel goes here."""
        return self.attend_reference(layer, q_NHD)

    def meet(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
        """``rotate``, ``append`` and ``attend`` at once: what a layer wants of a cache. A layout that can do it in fewer passes does."""
        q_NHD, k_NKD = self.rotate(q_NHD, k_NKD)
        self.append(layer, k_NKD, v_NKD)
        return self.attend(layer, q_NHD)

    def attend_reference(self, layer: int, q_NHD: Tensor) -> Tensor:
        """The law's own side: reference attention over ``gather``, sequence by sequence.

        Only a view that rotates or chooses per head when it attends says anew what is meant.
        """
        outs = []
        for row in self.rows:
            k_SKD, v_SKD, _ = self.gather(layer, row.seq)
            outs.append(attention_reference(q_NHD[row.rows], k_SKD, v_SKD, self.visible(row, self.window(layer))))
        return torch.cat(outs)

    def window(self, layer: int) -> int | None:
        """Sliding window of a layer, in keys; None where every earlier token is seen."""
        return self.cache.config.window(self.cache.model_layers[layer])

    def visible(self, row: Row, window: int | None) -> Tensor:
        """Boolean ``[T, S]`` of a row (see ``Row.visible``), made once a step and on the cache's device."""
        if (row.seq, window) not in self._visible:
            self._visible[row.seq, window] = move(row.visible(window), self.cache.device)
        return self._visible[row.seq, window]

    def gather(self, layer: int, seq: int) -> tuple[Tensor, Tensor, Tensor]:
        """Dense keys ``[S, K, D]``, values ``[S, K, Dv]`` and positions ``[S]`` of one sequence of the step.

        The new tokens are included once the layer was appended.
        """
        row = next((row for row in self.rows if row.seq == seq), None)
        if row is None:
            raise CacheError(f"sequence {seq} is not in this step; it has {[row.seq for row in self.rows]}")
        length = row.total if layer in self.appended else row.start
        return *self.cache._read(layer, seq, length), put(row.positions[:length], self.cache.device)


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
