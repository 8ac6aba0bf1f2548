"""Runs a plan: one ragged forward pass, and logits of those who are to be given a token, and of their guesses."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from kvedu.caches.paged import PagedCache
from kvedu.caches.view import View
from kvedu.engine.batch import Batch, batch_of
from kvedu.engine.choose import Picks
from kvedu.engine.graphs import DecodeGraphs
from kvedu.engine.plan import Plan
from kvedu.engine.sequence import Sequence
from kvedu.kernels.transfer import put
from kvedu.model.sampling import logprob_numbers, reported
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

    @torch.inference_mode()
    def run(self, plan: Plan, before: Picks | None = None) -> Tensor:
        """Logits ``[R, V]`` of the entries of the plan that yield a token, in their order: a row for each, and its guesses'.

        ``before``: the tokens of a step in flight, where this one continues it. All tokens of the step go through the model together;
        the head sees only the rows that matter. Prompts that are to be scored are, row by row as they are computed.
        """
        batch = batch_of(plan)
        plain = not batch.scored and all(work.sequence.guesses is None for work in plan.work)  # nothing is wanted of it but logits
        with self.cache.step(batch.counts, batch.parents or None) as view:
            ids_N = self._ids(batch, before)
            if self.graphs is not None and plain and self.graphs.takes(view):
                return self._rows(self.graphs.logits(ids_N, view), batch.last)
            hidden_NM = self.hidden(plan, ids_N, view)
        for sequence, rows in batch.scored.items():
            self._score(sequence, hidden_NM[rows.start : rows.stop])
        return self.model.logits(self._rows(hidden_NM, batch.last))

    def _score(self, sequence: Sequence, hidden_TM: Tensor) -> None:
        """Log-probabilities of a prompt's next T tokens, for which the host waits once."""
        request, first = sequence.run.request, len(sequence.scores)
        if len(hidden_TM):
            tokens_T = put(sequence.ids[first : first + len(hidden_TM)], hidden_TM.device)
            rows = zip(self.model.logits(hidden_TM), tokens_T)
            numbers_TX = torch.stack([logprob_numbers(logits_V, token, request.prompt_logprobs) for logits_V, token in rows])
            sequence.scores += [reported(numbers_X) for numbers_X in numbers_TX.tolist()]
        if len(sequence.scores) == len(request.prompt_ids):
            sequence.run.prompt_logprobs = tuple(sequence.scores)

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
