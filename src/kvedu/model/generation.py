"""The loop of ``generate``: a batch of requests, one ragged step for all that are alive at a time."""

from __future__ import annotations

from typing import Iterator, Sequence

import torch
from torch import Tensor

from kvedu.caches.contract import Cache
from kvedu.caches.none import NoCache
from kvedu.caches.concat import ConcatCache
from kvedu.caches.latent import LatentCache
from kvedu.caches.static import StaticCache
from kvedu.caches.view import View
from kvedu.errors import CacheFull, RequestError
from kvedu.model.completion import Completion, Delta, Run
from kvedu.model.request import Request
from kvedu.model.sampling import TokenLogprob, choose_batch, token_logprob
from kvedu.model.transformer import Transformer


class Generation:
    """A batch of requests on one model and one cache: ``stream`` runs it, ``completions`` are its results.

    ``completions`` maps (prompt, copy) to what has finished. Arguments as in ``generate``.
    """

    def __init__(
        self,
        model: Transformer,
        requests: Sequence[Request],
        cache: Cache | None = None,
        seqs: Sequence[int] | None = None,
        keep: bool = False,
    ) -> None:
        if seqs is not None and (cache is None or len(seqs) != len(requests) or any(r.n > 1 for r in requests)):
            raise RequestError("seqs continues sequences of a given cache: one for each prompt, with n = 1")
        self.model, self.requests, self.seqs = model, requests, seqs
        self.cache = cache if cache is not None else _cache_for(model, requests)
        self.keep = keep or seqs is not None
        self.completions: dict[tuple[int, int], Completion] = {}
        self._check_switch()

    def _check_switch(self) -> None:
        """Refuse up front what the cache would refuse half-way: RoPE frequencies that change under cached keys."""
        rope = self.model.config.rope
        switch = rope.switch_length
        if switch is None or isinstance(self.cache, NoCache):
            return
        for request in self.requests:
            P, end = len(request.prompt_ids), request.cached_tokens
            if end > max(switch, P) and (P <= switch or rope.kind == "dynamic"):
                raise RequestError(
                    f"prompt {P} + new {request.max_new_tokens} tokens would cross length {switch}, where the {rope.kind} "
                    "RoPE changes its frequencies and cached keys turn wrong; stay below it or pass cache=NoCache(config)"
                )

    @torch.inference_mode()
    def stream(self) -> Iterator[Delta]:
        """Run to the end, yielding what each step adds. Closing the iterator early frees what it holds."""
        runs: list[Run] = []
        try:
            self._open(runs)
            yield from self._prefill(runs)
            while alive := [run for run in runs if run.finished is None]:
                yield from self._sample(alive, self._forward(alive))
        finally:
            for run in runs:
                done = (run.prompt, run.copy) in self.completions
                if not done and self.seqs is None and run.seq in self.cache.sequences:
                    self.cache.free(run.seq)

    def _open(self, runs: list[Run]) -> None:
        for i, request in enumerate(self.requests):
            seq = self.cache.add() if self.seqs is None else self.seqs[i]
            runs.append(self._run(i, request, 0, seq))
            P, seen, room = len(request.prompt_ids), self.cache.seen(seq), self.cache.room(seq)
            if room is not None and seen + room < request.cached_tokens:
                raise CacheFull(
                    f"prompt {i} needs {request.cached_tokens} places (prompt {P} + new {request.max_new_tokens} - 1); "
                    f"the cache has {seen + room} for a sequence. Make it longer or ask for fewer tokens"
                )
            if seen >= P:
                self.cache.truncate(seq, P - 1)  # one token at least must be computed, or there are no logits

    def _run(self, prompt: int, request: Request, copy: int, seq: int) -> Run:
        return Run.start(request, prompt, copy, seq, self.model.tokenizer)

    def _prefill(self, runs: list[Run]) -> Iterator[Delta]:
        """Run the prompts, fork those that want several completions, and sample each one's first token."""
        silent = [run for run in runs if run.request.max_new_tokens == 0]
        scored = [run for run in silent if run.request.prompt_logprobs is not None]
        first = [run for run in runs if run.request.max_new_tokens > 0]
        logits_BV = self._forward([*first, *scored]) if first or scored else None
        for run in silent:
            run.finished = "length"
            self._close(run)
            yield Delta(run.prompt, run.copy, "", finish_reason="length")
        family, rows = [], []
        for i, run in enumerate(first):
            family.append(run)
            rows.append(i)
            for copy in range(1, run.request.n):
                twin = self._run(run.prompt, run.request, copy, self.cache.fork(run.seq))
                twin.prompt_logprobs = run.prompt_logprobs
                runs.append(twin)
                family.append(twin)
                rows.append(i)
        if family:
            yield from self._sample(family, logits_BV[rows])

    def _forward(self, runs: list[Run]) -> Tensor:
        """One step over what the cache has not seen of each run; logits ``[B, V]`` of the last tokens."""
        new = [run.ids[self.cache.seen(run.seq) :] for run in runs]
        ids_N = torch.tensor([i for ids in new for i in ids], device=self.model.device)
        with self.cache.step({run.seq: len(ids) for run, ids in zip(runs, new)}) as view:
            hidden_NM = self._hidden(runs, ids_N, view)
        for row, run in zip(view.rows, runs):
            if run.request.prompt_logprobs is not None and run.prompt_logprobs is None:
                run.prompt_logprobs = self._score_prompt(run.request, hidden_NM[row.rows])
        return self.model.logits(hidden_NM[view.last_rows])

    def _hidden(self, runs: list[Run], ids_N: Tensor, view: View) -> Tensor:
        """Output of the model's last block for a step of these runs."""
        return self.model.hidden(ids_N, view)

    def _score_prompt(self, request: Request, hidden_TM: Tensor) -> tuple[TokenLogprob | None, ...]:
        ids = request.prompt_ids
        if len(hidden_TM) != len(ids):
            raise RequestError("prompt_logprobs needs the whole prompt computed; part of it was cached already")
        logits_TV = self.model.logits(hidden_TM)
        following = (token_logprob(logits_TV[t], ids[t + 1], request.prompt_logprobs) for t in range(len(ids) - 1))
        return (None, *following)

    def _sample(self, runs: list[Run], logits_BV: Tensor) -> Iterator[Delta]:
        chosen = choose_batch([run.sampler for run in runs], logits_BV, [run.ids for run in runs])
        deltas = []
        for run, token_id, logits_V in zip(runs, chosen, logits_BV):
            deltas.append(run.take(token_id, run.sampler.logprob(token_id, logits_V, run.ids)))
            if run.finished:
                self._close(run)
        yield from deltas

    def _close(self, run: Run) -> None:
        """Give the sequence back at once and keep the result."""
        if not self.keep:
            self.cache.free(run.seq)
        self.completions[run.prompt, run.copy] = run.completion(self.keep)


def _cache_for(model: Transformer, requests: Sequence[Request]) -> Cache:
    """A static cache that just holds these requests; for latents, whose values are part of their keys, a latent cache."""
    if model.config.Dv != model.config.D:
        kind = LatentCache if model.config.latent.absorbed else ConcatCache
        return kind(model.config, dtype=model.dtype, device=model.device)
    return StaticCache(
        model.config,
        max_sequences=sum(request.n for request in requests),
        max_length=max(request.cached_tokens for request in requests),
        dtype=model.dtype,
        device=model.device,
    )
