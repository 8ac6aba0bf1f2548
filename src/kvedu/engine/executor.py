"""Runs a plan: one ragged forward pass, and logits of those who are to be given a token."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.caches.paged import PagedCache
from kvedu.engine.scheduler import Plan
from kvedu.model.transformer import Transformer


class Executor:
    """One model on one paged cache."""

    def __init__(self, model: Transformer, cache: PagedCache) -> None:
        self.model, self.cache = model, cache

    @torch.inference_mode()
    def run(self, plan: Plan) -> Tensor:
        """Logits ``[R, V]`` for the R entries of the plan that yield a token, in their order.

        All tokens of the step go through the model together; the head sees only the rows that matter.
        """
        ids_N, last = [], []
        for work in plan.work:
            sequence = work.sequence
            ids_N += sequence.ids[sequence.computed : sequence.computed + work.tokens]
            if work.yields:
                last.append(len(ids_N) - 1)
        counts = {work.sequence.run.seq: work.tokens for work in plan.work}
        with self.cache.step(counts) as view:
            hidden_NM = self.model.hidden(torch.tensor(ids_N, device=self.model.device), view)
        return self.model.logits(hidden_NM[last])
