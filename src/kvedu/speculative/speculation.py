"""The loop: propose, verify all guesses of all texts in one pass, roll back what was wrong."""

from __future__ import annotations

from typing import Iterator, Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import Cache
from kvedu.caches.view import View
from kvedu.errors import CacheFull, RequestError
from kvedu.model.completion import Delta, Run
from kvedu.model.generation import Generation
from kvedu.model.request import Request
from kvedu.model.transformer import Transformer
from kvedu.speculative.draws import Draws
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.rounds import Round
from kvedu.speculative.tree import EMPTY, TokenTree
from kvedu.speculative.verify import Rule, Target, Verdict, exact


Judged = tuple[TokenTree, Verdict, Tensor, Tensor]
"""A text's tree as it was verified, the verdict, the target's logits ``[T, V]`` and its features ``[T, E]`` on it."""


class Speculation(Generation):
    """``Generation`` whose decode steps verify trees. Between rounds the cache holds each text but its last token,
    which the next round runs together with the guesses below it.

    ``rounds`` maps (prompt, copy) to what each round did. Raises ``RequestError`` for a cache that cannot forget.
    """

    draws: type[Draws] = Draws

    def __init__(
        self,
        model: Transformer,
        requests: Sequence[Request],
        proposer: Proposer,
        cache: Cache | None = None,
        seqs: Sequence[int] | None = None,
        keep: bool = False,
        rule: Rule = exact,
    ) -> None:
        super().__init__(model, requests, cache, seqs, keep)
        if reason := self.cache.exceptions.get("keeps every token"):
            raise RequestError(f"{type(self.cache).__name__} cannot take back rejected tokens: {reason}; use another cache")
        proposer.check(model)
        self.proposer, self.rule, self.taps = proposer, rule, proposer.taps(model)
        self.rounds: dict[tuple[int, int], list[Round]] = {}
        self._draws: dict[tuple[int, int], Draws] = {}

    @torch.inference_mode()
    def stream(self) -> Iterator[Delta]:
        """Run to the end, yielding a delta for each token. Closing the iterator early frees what it holds."""
        runs: list[Run] = []
        try:
            self._open(runs)
            yield from self._prefill(runs)
            while alive := [run for run in runs if run.finished is None]:
                yield from self._round(alive)
        finally:
            for run in runs:
                self.proposer.release((run.prompt, run.copy))
                done = (run.prompt, run.copy) in self.completions
                if not done and self.seqs is None and run.seq in self.cache.sequences:
                    self.cache.free(run.seq)

    def _run(self, prompt: int, request: Request, copy: int, seq: int) -> Run:
        self.rounds[prompt, copy] = []
        self._draws[prompt, copy] = self.draws(request.sampling, copy)
        return super()._run(prompt, request, copy, seq)

    def _hidden(self, runs: list[Run], ids_N: Tensor, view: View) -> Tensor:
        """A prompt's pass; its features go to each of the completions that begin with it."""
        hidden_NM, features_NE = self.model.tapped(ids_N, view, self.taps)
        for run, row in zip(runs, view.rows):
            for copy in range(run.request.n if self.taps else 0):
                self.proposer.feed((run.prompt, copy), len(run.ids) - row.count, features_NE[row.rows])
        return hidden_NM

    def _sample(self, runs: list[Run], logits_BV: Tensor) -> Iterator[Delta]:
        """First tokens: the verdict on no guess at all."""
        deltas = []
        for run, logits_V in zip(runs, logits_BV):
            verdict = self._judge(run, EMPTY, logits_V[None])
            deltas += self._take(run, EMPTY, verdict, logits_V[None])
        yield from deltas

    def _round(self, alive: list[Run]) -> Iterator[Delta]:
        deltas = []
        for run, (tree, verdict, logits_TV, features_TE) in zip(alive, self._verify_what_fits(alive, self._propose(alive))):
            start, key = len(run.ids) - 1, (run.prompt, run.copy)
            self.proposer.observe(key, tree, logits_TV)
            taken = self._take(run, tree, verdict, logits_TV, start)
            if self.taps:
                kept = verdict.path[: len(taken) - 1]
                self.proposer.feed(key, start, features_TE[[0, *(i + 1 for i in kept)]])
            self.rounds[run.prompt, run.copy].append(Round(len(tree), tree.depth, len(verdict.path), len(taken)))
            deltas += taken
        yield from deltas

    def _verify_what_fits(self, alive: list[Run], trees: list[TokenTree]) -> list[Judged]:
        """Verify the trees; where all texts' guesses together find no room, the first of each; else none.

        A tree's size may depend on what was drawn. A first guess is never dropped for that reason, only when not even
        one of each fits: dropping a draw because of what it is would change the distribution.
        """
        for nodes in (max(map(len, trees)), 1, 0):
            fitting = [tree.cut(depth=tree.depth, nodes=nodes) for tree in trees]
            try:
                return self._verify(alive, fitting)
            except CacheFull:
                if not any(fitting):
                    raise
        raise AssertionError("the last try brings no guesses: it returns or raises")

    def _propose(self, alive: list[Run]) -> list[TokenTree]:
        """A tree for each run, cut to what can still be used: a round yields one token more than its depth."""
        asks = {}
        for i, run in enumerate(alive):
            limit = run.request.max_new_tokens - run.sampled - 1
            if limit > 0:
                key = (run.prompt, run.copy)
                asks[i] = Ask(key, tuple(run.ids), limit, run.request.sampling, self._draws[key])
        found = dict(zip(asks, self.proposer.propose(list(asks.values())))) if asks else {}
        trees = []
        for i, run in enumerate(alive):
            tree, room = found.get(i, EMPTY), self.cache.room(run.seq)
            nodes = len(tree) if room is None else room - 1
            trees.append(tree.cut(depth=asks[i].limit if i in asks else 0, nodes=nodes))
        return trees

    def _verify(self, alive: list[Run], trees: list[TokenTree]) -> list[Judged]:
        """One pass over the last token and the guesses of every run; if it fails, nothing has happened."""
        ids = [i for run, tree in zip(alive, trees) for i in (run.ids[-1], *tree.tokens)]
        counts = {run.seq: 1 + len(tree) for run, tree in zip(alive, trees)}
        parents = {
            run.seq: [-1, *(parent + 1 for parent in tree.parents)]
            for run, tree in zip(alive, trees)
            if not tree.is_chain
        }
        with self.cache.step(counts, parents or None) as view:
            hidden_NM, features_NE = self.model.tapped(torch.tensor(ids, device=self.model.device), view, self.taps)
            logits_NV = self.model.logits(hidden_NM)
            logits = [logits_NV[row.rows] for row in view.rows]
            verdicts = [self._judge(*each) for each in zip(alive, trees, logits)]
        return list(zip(trees, verdicts, logits, [features_NE[row.rows] for row in view.rows]))

    def _judge(self, run: Run, tree: TokenTree, logits_TV: Tensor) -> Verdict:
        target = Target(logits_TV, tree, run.ids, run.request.sampling)
        return self.rule(tree, target, self._draws[run.prompt, run.copy])

    def _take(self, run: Run, tree: TokenTree, verdict: Verdict, logits_TV: Tensor, start: int | None = None) -> list[Delta]:
        """Add the verdict's tokens until the text ends, and bring the cache in step (``start``: tokens before the round)."""
        rows = [0, *(i + 1 for i in verdict.path)]
        deltas = []
        for row, token in zip(rows, [*(tree.tokens[i] for i in verdict.path), verdict.token]):
            deltas.append(run.take(token, run.sampler.logprob(token, logits_TV[row], run.ids)))
            if run.finished:
                break
        if start is not None:
            self._settle(run.seq, tree, start, verdict.path[: len(deltas) - 1])
        if run.finished:
            self._close(run)
        return deltas

    def _settle(self, seq: int, tree: TokenTree, start: int, path: Sequence[int]) -> None:
        """Leave the text's last token of before and the kept guesses, nothing else."""
        length = start + 1 + len(path)
        if list(path) != list(range(len(path))):
            self.cache.keep(seq, [*range(start + 1), *(start + 1 + i for i in path)])
        elif len(tree) > len(path):
            self.cache.truncate(seq, length)
