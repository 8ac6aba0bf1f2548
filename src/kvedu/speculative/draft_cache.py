"""A draft model's own cache, kept in step with texts that grow, and shrink back where a guess was wrong."""

from __future__ import annotations

from typing import Hashable, Mapping, Sequence

import torch
from torch import Tensor

from kvedu.caches.concat import ConcatCache
from kvedu.caches.contract import Cache
from kvedu.errors import RequestError
from kvedu.model.transformer import Transformer


class DraftCache:
    """A model, a cache of its own, and for each text the ids that the cache holds.

    The ids are compared with the text at the start of each round, so nothing has to be reported back: a rejected
    guess is taken away, and what is missing (the correction; after a round in which all guesses were right
    also the last of them, which was never run: C077) rides along with the round's first pass.
    ``shorter`` allows a model with fewer positions than the target, which guesses nothing beyond them (C080).
    """

    def __init__(self, model: Transformer, cache: Cache | None = None, *, shorter: bool = False) -> None:
        self.model, self.shorter = model, shorter
        self.cache = ConcatCache(model.config, dtype=model.dtype, device=model.device) if cache is None else cache
        if reason := self.cache.exceptions.get("keeps every token"):
            raise RequestError(f"{type(self.cache).__name__} cannot take back rejected tokens: {reason}; use another cache")
        self._held: dict[Hashable, tuple[int, list[int]]] = {}

    def check(self, target: Transformer) -> None:
        """Refuse a target whose token ids mean something else, or whose texts may outgrow the draft. Raises ``RequestError``."""
        ours, theirs = self.model.config.V, target.config.V
        if ours != theirs:
            raise RequestError(
                f"the draft has a vocabulary of {ours} tokens, the target one of {theirs}; guesses are token ids, so both "
                "must share one tokenizer"
            )
        most, wanted = self.model.config.max_positions, target.config.max_positions
        if most < wanted and not self.shorter:
            raise RequestError(
                f"the draft has {most} positions, the target {wanted}: in texts longer than {most} tokens it would guess "
                "nothing and only the clock would tell. Say shorter=True if texts stay short, or plain decoding there is wanted"
            )
        mine, other = self.model.tokenizer, target.tokenizer
        if mine is not None and other is not None and mine is not other:
            wrong = next((i for i in range(ours) if mine.token(i) != other.token(i)), None)
            if wrong is not None:
                raise RequestError(
                    f"token id {wrong} is {mine.token(wrong)!r} to the draft and {other.token(wrong)!r} to the target; "
                    "both must share one tokenizer"
                )

    def room(self, key: Hashable, ids: Sequence[int], limit: int, spare: int = 0) -> int:
        """Depth that this model can still draft: it runs the text and all guesses but the last, ``spare`` more in a tree.

        Bounded by its own positions (C080), by where its RoPE would change its frequencies, and by its cache.
        """
        config = self.model.config
        longest = min(config.max_positions, config.rope.switch_length or config.max_positions)
        depth = min(limit, longest - len(ids) + 1)
        seq, held = self._sequence(key)
        room = self.cache.room(seq)
        return depth if room is None else min(depth, room + len(held) - len(ids) + 1 - spare)

    def align(self, key: Hashable, ids: Sequence[int]) -> list[int]:
        """Forget what is not the text's; return the tokens that are missing, the last one always among them."""
        seq, held = self._sequence(key)
        same = next((i for i, (a, b) in enumerate(zip(held, ids[:-1])) if a != b), min(len(held), len(ids) - 1))
        if same < len(held):
            self.cache.truncate(seq, same)
            del held[same:]
        return list(ids[same:])

    def run(self, new: Mapping[Hashable, Sequence[int]], parents: Mapping[Hashable, Sequence[int]] | None = None) -> list[Tensor]:
        """One pass over new tokens of several texts; logits ``[T, V]`` of each."""
        seqs = {key: self._sequence(key)[0] for key in new}
        ids = torch.tensor([i for tokens in new.values() for i in tokens], device=self.model.device)
        trees = {seqs[key]: tree for key, tree in parents.items()} if parents else None
        with self.cache.step({seqs[key]: len(tokens) for key, tokens in new.items()}, trees) as view:
            logits_NV = self.model(ids, view, None if parents else view.last_rows)
            rows = [row.rows for row in view.rows] if parents else [slice(i, i + 1) for i in range(len(new))]
        for key, tokens in new.items():
            self._held[key][1].extend(tokens)
        return [logits_NV[each] for each in rows]

    def back(self, key: Hashable, length: int) -> None:
        """Forget all but the first ``length`` tokens of a text: a tree that was run to be looked at."""
        seq, held = self._sequence(key)
        self.cache.truncate(seq, length)
        del held[length:]

    def length(self, key: Hashable) -> int:
        """Tokens held of a text; 0 for an unknown one."""
        return self.cache.length(self._held[key][0]) if key in self._held else 0

    def release(self, key: Hashable) -> None:
        """Give a text's sequence back; nothing happens for an unknown one."""
        if key in self._held:
            self.cache.free(self._held.pop(key)[0])

    def _sequence(self, key: Hashable) -> tuple[int, list[int]]:
        if key not in self._held:
            self._held[key] = (self.cache.add(), [])
        return self._held[key]
