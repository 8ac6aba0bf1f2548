"""Runs a plan: one ragged forward pass, and logits of those who are to be given a token, and of their guesses."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator

import torch
from torch import Tensor

from kvedu.caches.paged import PagedCache
from kvedu.caches.view import View
from kvedu.engine.batch import Batch, batch_of
from kvedu.engine.choose import Picks
from kvedu.engine.graphs import DecodeGraphs
from kvedu.engine.plan import Plan
from kvedu.engine.scores import score
from kvedu.kernels.transfer import put
from kvedu.model.transformer import Transformer


class Executor:
    """One model on one paged cache; ``hidden`` runs its blocks for a plan and gives the output of the last.

    ``graphs`` replays the steps that it takes, of sequences that nobody guesses for. On a GPU ``run`` returns before the
    step has run; only the scores of a prompt are waited for.
    """

    def __init__(
        self,
        model: Transformer,
        cache: PagedCache,
        hidden: Callable[[Plan, Tensor, View], Tensor],
        graphs: DecodeGraphs | None = None,
    ) -> None:
        self.model, self.cache, self.hidden, self.graphs = model, cache, hidden, graphs

    @contextmanager
    def run(self, plan: Plan, before: Picks | None = None) -> Iterator[Tensor]:
        """Logits ``[R, V]`` of the entries of the plan that yield a token, in their order: a row for each, and its guesses'.

        They are chosen from inside the block: whatever fails until its end, the cache is as before. ``before``: the tokens of a step in
        flight, where this one continues it. All tokens of the step go through the model together; the head sees only the rows that matter.
        Prompts that are to be scored are, row by row as they are computed.
        """
        batch, here = batch_of(plan), torch.accelerator.device_index(self.model.device.index)  # a thread of a server has another
        with torch.inference_mode(), here, self.cache.step(batch.counts, batch.parents or None) as view:
            yield self._logits(plan, batch, view, self._ids(batch, before))

    def _logits(self, plan: Plan, batch: Batch, view: View, ids_N: Tensor) -> Tensor:
        plain = not batch.scored and all(work.sequence.guesses is None for work in plan.work)  # nothing is wanted of it but logits
        if self.graphs is not None and plain and self.graphs.takes(view):
            return self._rows(self.graphs.logits(ids_N, view), batch.last)
        hidden_NM = self.hidden(plan, ids_N, view)
        for sequence, rows in batch.scored.items():
            score(self.model, sequence, hidden_NM[rows.start : rows.stop])
        return self.model.logits(self._rows(hidden_NM, batch.last))

    def _ids(self, batch: Batch, before: Picks | None) -> Tensor:
        """The step's token ids; those that only the device knows are taken from there."""
        ids_N = put(batch.ids, self.model.device)
        if batch.late:
            places = put([before.place[sequence] for sequence in batch.late.values()], ids_N.device)
            tokens = before.tokens[places].clamp(min=0)  # a broken row's token is thrown away, but it must be one
            if len(batch.late) == len(batch.ids):
                return tokens
            ids_N[put(list(batch.late), ids_N.device)] = tokens
        return ids_N

    @staticmethod
    def _rows(x_NX: Tensor, rows: list[int]) -> Tensor:
        return x_NX if len(rows) == len(x_NX) else x_NX[put(rows, x_NX.device)]
