"""Runs a plan: one ragged forward pass, and logits of those who are to be given a token, and of their guesses."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from kvedu.caches.contract import View
from kvedu.caches.paged import PagedCache
from kvedu.engine.batch import batch_of
from kvedu.engine.plan import Plan
from kvedu.model.sampling import token_logprob
from kvedu.model.transformer import Transformer


class Executor:
    """One model on one paged cache; ``hidden`` runs its blocks for a plan and gives the output of the last."""

    def __init__(self, model: Transformer, cache: PagedCache, hidden: Callable[[Plan, Tensor, View], Tensor]) -> None:
        self.model, self.cache, self.hidden = model, cache, hidden

    @torch.inference_mode()
    def run(self, plan: Plan) -> Tensor:
        """Logits ``[R, V]`` of the entries of the plan that yield a token, in their order: a row for each, and its guesses'.

        All tokens of the step go through the model together; the head sees only the rows that matter.
        Prompts that are to be scored are, row by row as they are computed.
        """
        batch = batch_of(plan)
        with self.cache.step(batch.counts, batch.parents or None) as view:
            hidden_NM = self.hidden(plan, torch.tensor(batch.ids, device=self.model.device), view)
        for sequence, rows in batch.scored.items():
            logits_TV = self.model.logits(hidden_NM[rows.start : rows.stop])
            for logits_V in logits_TV:
                token = sequence.ids[len(sequence.scores)]
                sequence.scores.append(token_logprob(logits_V, token, sequence.run.request.prompt_logprobs))
            if len(sequence.scores) == len(sequence.run.request.prompt_ids):
                sequence.run.prompt_logprobs = tuple(sequence.scores)
        return self.model.logits(hidden_NM[batch.last])
