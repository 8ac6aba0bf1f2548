"""Generation with a cache: batches of unequal prompts, one ragged step for all of them at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, Sequence

import torch

from kvedu.caches.contract import Cache
from kvedu.caches.none import NoCache
from kvedu.caches.static import StaticCache
from kvedu.errors import CacheFull, RequestError
from kvedu.model.detokenize import Detokenizer
from kvedu.model.request import Prompt, Request, is_batch, make_request
from kvedu.model.sampling import Sampler, Sampling, TokenLogprob, choose_batch, token_logprob
from kvedu.model.transformer import Transformer


@dataclass(frozen=True)
class Delta:
    """What one step added to one completion; ``finish_reason`` is None until its last."""

    prompt: int
    copy: int
    text: str
    token_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    logprob: TokenLogprob | None = None


@dataclass(frozen=True)
class Completion:
    """One finished completion. ``finish_reason``: "stop" (an EOS id or a stop string) or "length".

    ``token_ids`` are all sampled ids, the ending EOS included; ``text`` ends before it.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    seq: int | None = None
    """Its sequence in the caller's cache, where ``keep`` left it open."""


@dataclass
class _Run:
    """One completion in the making."""

    request: Request
    prompt: int
    copy: int
    seq: int
    sampler: Sampler
    text: Detokenizer | None
    ids: list[int]
    finished: str | None = None

    def take(self, token_id: int) -> str:
        """Add a sampled token and return the text that may be shown. A stop counts before the length cap does."""
        self.ids.append(token_id)
        shown = ""
        if token_id in self.request.eos_ids:
            self.finished = "stop"
        elif self.text is not None:
            shown = self.text.push(token_id)
            if self.text.stopped is not None:
                self.finished = "stop"
        if self.finished is None and len(self.ids) - len(self.request.prompt_ids) >= self.request.max_new_tokens:
            self.finished = "length"
        if self.finished and self.text is not None:
            shown += self.text.finish()
        return shown


@dataclass
class Generation:
    """A batch of requests on one model and one cache; ``stream`` runs it, ``completions`` are its results.

    Made whole or not at all: every request is checked, and that the cache can take it, before the
    first token is computed.
    """

    model: Transformer
    requests: list[Request]
    cache: Cache | None = None
    seqs: Sequence[int] | None = None
    keep: bool = False
    completions: dict[tuple[int, int], Completion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cache is None:
            self.cache = StaticCache(
                self.model.config,
                max_sequences=sum(request.n for request in self.requests),
                max_length=max(request.cached_tokens for request in self.requests),
                dtype=self.model.dtype,
                device=self.model.device,
            )
        if self.seqs is not None and (len(self.seqs) != len(self.requests) or any(r.n > 1 for r in self.requests)):
            raise RequestError(f"{len(self.seqs)} sequences for {len(self.requests)} prompts: give one each, with n = 1")
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
        opened: list[int] = []
        try:
            runs = self._open(opened)
            yield from self._prefill(runs, opened)
            while alive := [run for run in runs if run.finished is None]:
                yield from self._sample(alive, self._forward(alive))
        finally:
            kept = {c.seq for c in self.completions.values()}
            for seq in opened:
                if seq in self.cache.sequences and seq not in kept:
                    self.cache.free(seq)

    def _open(self, opened: list[int]) -> list[_Run]:
        runs = []
        for i, request in enumerate(self.requests):
            if self.seqs is not None:
                seq = self.seqs[i]
                # At least one token must be computed, or there are no logits to sample from.
                if self.cache.length(seq) >= len(request.prompt_ids):
                    self.cache.truncate(seq, len(request.prompt_ids) - 1)
            else:
                seq = self.cache.add()
                opened.append(seq)
            room = self.cache.room(seq)
            if room is not None and self.cache.length(seq) + room < request.cached_tokens:
                raise CacheFull(
                    f"prompt {i} needs {request.cached_tokens} places (prompt {len(request.prompt_ids)} + new "
                    f"{request.max_new_tokens} - 1); the cache has {self.cache.length(seq) + room} for a sequence. "
                    "Make it longer or ask for fewer tokens"
                )
            runs.append(self._run(i, request, 0, seq))
        return runs

    def _run(self, prompt: int, request: Request, copy: int, seq: int) -> _Run:
        tokenizer = self.model.tokenizer
        text = Detokenizer(tokenizer, request.stop) if tokenizer is not None else None
        return _Run(request, prompt, copy, seq, Sampler(request.sampling, copy), text, list(request.prompt_ids))

    def _prefill(self, runs: list[_Run], opened: list[int]) -> Iterator[Delta]:
        self._prompt_logprobs: dict[int, tuple[TokenLogprob | None, ...]] = {}
        for run in [run for run in runs if run.request.max_new_tokens == 0]:
            run.finished = "length"
            if run.request.prompt_logprobs is not None:
                self._forward([run])
            yield self._finish(run, Delta(run.prompt, run.copy, "", finish_reason="length"))
        first = [run for run in runs if run.finished is None]
        if not first:
            return
        logits_BV = self._forward(first)
        rows, sampled = [], []
        for i, run in enumerate(first):
            for copy in range(run.request.n):
                if copy:
                    seq = self.cache.fork(run.seq)
                    opened.append(seq)
                    runs.append(self._run(run.prompt, run.request, copy, seq))
                sampled.append(run if not copy else runs[-1])
                rows.append(i)
        yield from self._sample(sampled, logits_BV[rows])

    def _forward(self, runs: list[_Run]) -> torch.Tensor:
        """One step over what the cache has not seen of each run; logits ``[B, V]`` of the last tokens."""
        new = [run.ids[self.cache.length(run.seq) :] for run in runs]
        ids_N = torch.tensor([i for ids in new for i in ids], device=self.model.device)
        with self.cache.step({run.seq: len(ids) for run, ids in zip(runs, new)}) as view:
            hidden_NM = self.model.hidden(ids_N, view)
        for row, run in zip(view.rows, runs):
            if run.request.prompt_logprobs is not None and run.prompt not in self._prompt_logprobs:
                self._prompt_logprobs[run.prompt] = self._score_prompt(run, hidden_NM[row.rows])
        return self.model.logits(hidden_NM[view.last_rows])

    def _score_prompt(self, run: _Run, hidden_TM: torch.Tensor) -> tuple[TokenLogprob | None, ...]:
        ids, top = run.request.prompt_ids, run.request.prompt_logprobs
        if len(hidden_TM) != len(ids):
            raise RequestError("prompt_logprobs needs the whole prompt computed; part of it was cached already")
        logits_TV = self.model.logits(hidden_TM)
        return (None, *(token_logprob(logits_TV[t], ids[t + 1], top) for t in range(len(ids) - 1)))

    def _sample(self, runs: list[_Run], logits_BV: torch.Tensor) -> Iterator[Delta]:
        chosen = choose_batch([run.sampler for run in runs], logits_BV, [run.ids for run in runs])
        deltas = []
        for run, token_id, logits_V in zip(runs, chosen, logits_BV):
            logprob = run.sampler.logprob(token_id, logits_V, run.ids)
            shown = run.take(token_id)
            delta = Delta(run.prompt, run.copy, shown, (token_id,), run.finished, logprob)
            self._record.setdefault((run.prompt, run.copy), []).append(delta)
            deltas.append(self._finish(run, delta) if run.finished else delta)
        yield from deltas

    @property
    def _record(self) -> dict[tuple[int, int], list[Delta]]:
        return self.__dict__.setdefault("_deltas", {})

    def _finish(self, run: _Run, delta: Delta) -> Delta:
        deltas = self._record.get((run.prompt, run.copy), [])
        if not self.keep and self.seqs is None:
            self.cache.free(run.seq)
        asked = run.request.sampling.logprobs is not None
        self.completions[run.prompt, run.copy] = Completion(
            prompt_ids=run.request.prompt_ids,
            token_ids=tuple(run.ids[len(run.request.prompt_ids) :]),
            text="".join(d.text for d in deltas),
            finish_reason=run.finished,
            logprobs=tuple(d.logprob for d in deltas) if asked else None,
            prompt_logprobs=self._prompt_logprobs.get(run.prompt),
            seq=run.seq if self.keep or self.seqs is not None else None,
        )
        return delta


def stream(
    model: Transformer,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = 128,
    sampling: Sampling | Sequence[Sampling] = Sampling(),
    n: int = 1,
    stop: str | Sequence[str] = (),
    ignore_eos: bool = False,
    prompt_logprobs: int | None = None,
    cache: Cache | None = None,
    seqs: Sequence[int] | None = None,
    keep: bool = False,
) -> Iterator[Delta]:
    """Generate and yield ``Delta`` by ``Delta``; joined texts equal ``generate``'s. Arguments as there."""
    yield from _generation(model, prompts, locals()).stream()


def generate(
    model: Transformer,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = 128,
    sampling: Sampling | Sequence[Sampling] = Sampling(),
    n: int = 1,
    stop: str | Sequence[str] = (),
    ignore_eos: bool = False,
    prompt_logprobs: int | None = None,
    cache: Cache | None = None,
    seqs: Sequence[int] | None = None,
    keep: bool = False,
) -> Completion | list[Completion] | list[list[Completion]]:
    """Complete one prompt, or a list of prompts together in ragged steps.

    A prompt is text, token ids or chat messages. ``sampling`` is one setting for all or one for
    each. Returns a ``Completion``, a list of them for a list of prompts, and a list of ``n`` in the
    place of each where n > 1.

    ``cache``: None makes a ``StaticCache`` of the right size; ``NoCache(config)`` runs the loop
    without a cache; any other cache is used and left as it was found. With ``keep`` finished
    sequences stay open in it (``Completion.seq``); ``seqs`` continues such sequences: each prompt is
    then the whole token history, of which only what the cache has not seen is computed.

    Ends at any of the model's EOS ids (unless ``ignore_eos``), before a ``stop`` string, or at
    ``max_new_tokens``. ``prompt_logprobs`` scores the prompt too (entry 0 is None: nothing precedes
    it); with ``max_new_tokens=0`` nothing else is done.

    Raises ``RequestError`` or ``CacheFull`` before any work is done.
    """
    generation = _generation(model, prompts, locals())
    for _ in generation.stream():
        pass
    done = generation.completions
    per_prompt = [[done[i, copy] for copy in range(r.n)] for i, r in enumerate(generation.requests)]
    results = [copies[0] if n == 1 else copies for copies in per_prompt]
    return results if is_batch(prompts) else results[0]


def _generation(model: Transformer, prompts: Prompt | Sequence[Prompt], options: dict) -> Generation:
    listed = list(prompts) if is_batch(prompts) else [prompts]
    sampling = options["sampling"]
    samplings = [sampling] * len(listed) if isinstance(sampling, Sampling) else list(sampling)
    if len(samplings) != len(listed):
        raise RequestError(f"{len(samplings)} sampling settings for {len(listed)} prompts: give one, or one each")
    stop = options["stop"]
    requests = [
        make_request(
            prompt,
            model.config,
            model.tokenizer,
            options["max_new_tokens"],
            sampling=one,
            n=options["n"],
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            eos_ids=() if options["ignore_eos"] else model.config.eos_ids,
            prompt_logprobs=options["prompt_logprobs"],
        )
        for prompt, one in zip(listed, samplings)
    ]
    return Generation(model, requests, options["cache"], options["seqs"], options["keep"])
