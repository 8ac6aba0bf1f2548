"""Runs a plan: one ragged forward pass, and logits of those who are to be given a token."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.caches.paged import PagedCache
from kvedu.engine.batch import batch_of
from kvedu.engine.plan import Plan
from kvedu.model.sampling import token_logprob
from kvedu.model.transformer import Transformer


class Executor:
    """One model on one paged cache."""

    def __init__(self, model: Transformer, cache: PagedCache) -> None:
        self.model, self.cache = model, cache

    @torch.inference_mode()
    def run(self, plan: Plan) -> Tensor:
        """Logits ``[R, V]`` for the R entries of the plan that yield a token, in their order.

        All tokens of the step go through the model together; the head sees only the rows that matter.
        Prompts that are to be scored are, row by row as they are computed.
        """
        batch = batch_of(plan)
        with self.cache.step(batch.counts) as view:
            hidden_NM = self.model.hidden(torch.tensor(batch.ids, device=self.model.device), view)
        for sequence, rows in batch.scored.items():
            logits_TV = self.model.logits(hidden_NM[rows.start : rows.stop])
            for logits_V in logits_TV:
                token = sequence.ids[len(sequence.scores)]
                sequence.scores.append(token_logprob(logits_V, token, sequence.run.request.prompt_logprobs))
            if len(sequence.scores) == len(sequence.run.request.prompt_ids):
                sequence.run.prompt_logprobs = tuple(sequence.scores)
        return self.model.logits(hidden_NM[batch.last])
