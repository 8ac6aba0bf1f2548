"""Speculation in the engine: guesses ride along in steps that are planned without them, and leave no trace when rejected.

A plan is made first, as if nobody guessed. What is left of the step's tokens and of the blocks is then given to guesses:
they never send anybody back to wait, never hold up a prompt, and where nothing is left there are none. After
the pass the cache is brought back to what is verified before anything is remembered for reuse.
"""

from __future__ import annotations

from typing import Callable, Hashable, Sequence as Seq

import torch
from torch import Tensor

from kvedu.caches.paged import PagedCache
from kvedu.caches.view import View
from kvedu.engine.choose import Turn
from kvedu.engine.depths import Depths, Wish
from kvedu.engine.drafts import keys
from kvedu.engine.guesses import Drafting
from kvedu.engine.plan import Plan, Work
from kvedu.engine.sequence import Sequence
from kvedu.engine.trace import Verified
from kvedu.model.completion import Delta
from kvedu.model.transformer import Transformer
from kvedu.speculative.proposer import Ask
from kvedu.speculative.rounds import Round
from kvedu.speculative.verify import Verdict


class Speculating:
    """What the engine does with guesses: before the pass, in it, and after it. ``depths`` decides how far to guess."""

    def __init__(self, model: Transformer, cache: PagedCache, depths: Depths, clock: Callable[[], float]) -> None:
        self.model, self.cache, self.depths, self.clock = model, cache, depths, clock
        self._drafted = 0.0
        self._done: list[tuple[Sequence, Round]] = []
        self._features: dict[int, Tensor] = {}
        self._first: dict[Work, int] = {}

    # -- before the pass -----------------------------------------------------------------------

    @torch.inference_mode()
    def propose(self, plan: Plan, token_budget: int) -> None:
        """Give the plan's decodes their guesses, as far as that pays and fits."""
        self._drafted, self._done = 0.0, []
        wishes = {work: wish for work in plan.work if (wish := self._wish(work)) is not None}
        if not wishes:
            return
        rows = sum(work.tokens for work in plan.work)
        depths = self.depths.choose(list(wishes.values()), rows, sum(work.yields for work in plan.work))
        asked: dict[Drafting, dict[Work, Ask]] = {}
        for (work, (guesses, _)), depth in zip(wishes.items(), depths):
            guesses.idle = 0 if depth else guesses.idle + 1
            if depth:
                ask = Ask(guesses.key, tuple(work.sequence.ids), depth, work.sequence.run.request.sampling, guesses.draws)
                asked.setdefault(guesses.drafting, {})[work] = ask
        start = self.clock()
        for drafting, asks in asked.items():
            self._draft(drafting, asks)
        self._drafted = self.clock() - start
        self._cut(plan, [work for asks in asked.values() for work in asks], token_budget - rows)

    def _wish(self, work: Work) -> Wish | None:
        """Decodes only: at a prompt's end there is no text yet to guess on, and it may be about to fork; a text that is
        computed again, be it a token at a time, has its next tokens already."""
        sequence, run = work.sequence, work.sequence.run
        limit = run.request.max_new_tokens - run.sampled - 1
        if sequence.guesses is None or work.tokens > 1 or not work.yields or not run.sampled or limit < 1:
            return None
        return Wish(sequence.guesses, limit if self.cache.undo is None else min(limit, self.cache.undo))

    def _draft(self, drafting: Drafting, asks: dict[Work, Ask]) -> None:
        start, deepest = self.clock(), max(ask.limit for ask in asks.values())
        trees = drafting.proposer.propose(list(asks.values()))
        drafting.seconds.note(min(deepest, drafting.proposer.deepest or deepest), self.clock() - start)
        for (work, ask), tree in zip(asks.items(), trees):
            work.tree = tree.cut(depth=ask.limit, nodes=len(tree))
            if work.tree:
                drafting.nodes.note(work.tree.depth, len(work.tree))

    def _cut(self, plan: Plan, works: Seq[Work], budget: int) -> None:
        """Cut trees, in the plan's order, to what is left of the step and of the blocks: by places, never by tokens."""
        growth = {work.sequence.run.seq: work.tokens for work in plan.work}
        together = growth | {work.sequence.run.seq: work.rows for work in works}
        if sum(len(work.tree) for work in works) <= budget and self._fits(together):
            return
        for work in works:
            seq, nodes = work.sequence.run.seq, max(min(len(work.tree), budget), 0)
            while nodes and not self._fits(growth | {seq: work.tokens + nodes}):
                nodes -= 1
            work.tree = work.tree.cut(depth=work.tree.depth, nodes=nodes)
            budget, growth[seq] = budget - nodes, work.rows

    def _fits(self, growth: dict[int, int]) -> bool:
        return self.cache.blocks_needed(growth) <= self.cache.available

    # -- the pass ------------------------------------------------------------------------------

    def hidden(self, plan: Plan, ids_N: Tensor, view: View) -> Tensor:
        """The model's last block; what its other blocks say is kept for the proposers that read it."""
        taps = sorted({tap for work in plan.work if work.sequence.guesses for tap in work.sequence.guesses.drafting.taps})
        self._first.clear()
        if not taps:
            return self.model.hidden(ids_N, view)
        hidden_NM, features_NE = self.model.tapped(ids_N, view, taps)
        self._features = dict(zip(taps, features_NE.chunk(len(taps), dim=-1)))
        first = 0
        for work in plan.work:
            self._first[work], first = first, first + work.rows
            if not work.yields and work.sequence.guesses is not None:
                for key in keys(work.sequence):
                    self._feed(work.sequence.guesses.drafting, key, work, ())
        return hidden_NM

    def _feed(self, drafting: Drafting, key: Hashable, work: Work, kept: Seq[int]) -> None:
        """The verified tokens of this step, as the blocks that the proposer reads left them."""
        if drafting.taps:
            first = self._first[work]
            rows = [*range(first, first + work.tokens), *(first + work.tokens + node for node in kept)]
            parts = [self._features[tap][rows] for tap in drafting.taps]
            drafting.proposer.feed(key, work.context, torch.cat(parts, dim=-1))

    # -- after the pass ------------------------------------------------------------------------

    def take(self, turn: Turn, verdict: Verdict, logits_RV: Tensor) -> list[Delta]:
        """Add a verdict's tokens to the text, up to where it ends, and bring the cache in step."""
        run, deltas = turn.sequence.run, []
        tokens = [*(turn.work.tree.tokens[node] for node in verdict.path), verdict.token]
        for token, after in zip(tokens, [-1, *verdict.path]):
            deltas.append(run.take(token, run.sampler.logprob(token, logits_RV[turn.row + 1 + after], run.ids)))
            if run.finished:
                break
        self._settle(turn, verdict, logits_RV, len(deltas))
        return deltas

    @torch.inference_mode()
    def _settle(self, turn: Turn, verdict: Verdict, logits_RV: Tensor, emitted: int) -> None:
        """Leave in the cache what the text keeps, and tell its proposer how it went."""
        (sequence, work, row), guesses = turn, turn.sequence.guesses
        tree, kept, old = work.tree, verdict.path[: emitted - 1], work.context + work.tokens
        if not tree.is_chain:
            self.cache.keep(sequence.run.seq, [*range(old), *(old + node for node in kept)])
        elif len(tree) > len(kept):
            self.cache.truncate(sequence.run.seq, old + len(kept))
        sequence.computed += len(kept)
        if sequence.computed // self.cache.page_size > old // self.cache.page_size:
            self.cache.remember(sequence.run.seq, sequence.ids[: sequence.computed], sequence.salt)
        if sequence.run.sampled > emitted:  # else it was the prompt's pass
            guesses.drafting.proposer.observe(guesses.key, tree, logits_RV[row : row + 1 + len(tree)])
            guesses.acceptance.note(tree.depth, len(verdict.path))
            guesses.rounds.append(Round(len(tree), tree.depth, len(verdict.path), emitted))
            self._done.append((sequence, guesses.rounds[-1]))
        self._feed(guesses.drafting, guesses.key, work, kept)

    def stepped(self, plan: Plan, start: float, end: float) -> list[Verified]:
        """The step is over: learn what it took; its rounds, as a trace records them."""
        if self._done:
            self.depths.stepped(sum(work.rows for work in plan.work), end - start - self._drafted)
        return [Verified(end, s.id, s.copy, r.guessed, r.depth, r.accepted, r.emitted) for s, r in self._done]
