"""The engine: requests in, text out, one ragged step for everybody at a time."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Hashable, Iterator, Sequence as Seq

from kvedu.caches.blocks import Reuse
from kvedu.caches.paged import PagedCache
from kvedu.engine.executor import Executor
from kvedu.engine.scheduler import Plan, Scheduler
from kvedu.engine.sequence import Sequence, State
from kvedu.engine.trace import Admitted, Arrived, Ended, Preempted, Share, Stepped, Trace
from kvedu.errors import RequestError
from kvedu.model.completion import Completion, Delta, Run
from kvedu.model.request import Prompt, make_request
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer


class Engine:
    """Serves many requests with one model over one paged cache.

    ``cache_bytes`` is the budget for keys and values; it is never exceeded, and a request that could
    not fit into it even alone is refused when it comes. ``reuse`` makes the prefix policy of a page
    size (``HashReuse``, ``RadixReuse``; None for none). Other settings are the ``Scheduler``'s.

    Every output equals what ``generate`` gives for the prompt alone (in fp32: token for token),
    whatever else runs, and however often it was preempted. One engine belongs to one thread.

    >>> engine = Engine(model, cache_bytes=64 * 2**20)              # doctest: +SKIP
    >>> a = engine.add("The capital of France is", max_new_tokens=8)  # doctest: +SKIP
    >>> for delta in engine.stream(a): print(delta.text, end="")     # doctest: +SKIP
    """

    def __init__(
        self,
        model: Transformer,
        *,
        cache_bytes: int,
        page_size: int = 16,
        reuse: Callable[[int], Reuse] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        **settings: Any,
    ) -> None:
        n_pages = PagedCache.pages_within(model.config, cache_bytes, page_size, model.dtype)
        policy = None if reuse is None else reuse(page_size)
        self.cache = PagedCache(
            model.config, n_pages=n_pages, page_size=page_size, reuse=policy, dtype=model.dtype, device=model.device
        )
        self.model, self.clock = model, clock
        self.scheduler = Scheduler(self.cache, **settings)
        self.executor = Executor(model, self.cache)
        self.trace = Trace()
        self._requests: dict[int, list[Sequence]] = {}
        self._unread: dict[int, deque[Delta]] = {}
        self._steps = 0

    def add(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        sampling: Sampling = Sampling(),
        n: int = 1,
        stop: str | Seq[str] = (),
        ignore_eos: bool = False,
        priority: int = 0,
        salt: Hashable = None,
    ) -> int:
        """Take in a request and return its id; it starts with one of the next steps.

        ``priority`` matters to the order ``by_priority``; ``salt`` (an adapter, a tenant) keeps its
        prefix apart from others'. Raises ``RequestError`` for what can never be served; nobody else is disturbed.
        """
        request = make_request(
            prompt, self.model.config, self.model.tokenizer, max_new_tokens, sampling=sampling, n=n,
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            eos_ids=() if ignore_eos else self.model.config.eos_ids,
        )  # fmt: skip
        if request.max_new_tokens < 1:
            raise RequestError("the engine generates: max_new_tokens must be at least 1 (generate() can score a prompt)")
        number, now = len(self._requests), self.clock()
        sequence = Sequence(Run.start(request, number, 0, None, self.model.tokenizer), now, priority, salt)
        self.scheduler.add(sequence)
        self._requests[number] = [sequence]
        self._unread[number] = deque()
        self.trace.events.append(Arrived(now, number, len(request.prompt_ids), request.max_new_tokens, n))
        return number

    @property
    def idle(self) -> bool:
        """Whether every request has ended."""
        return self.scheduler.idle

    def step(self) -> list[Delta]:
        """One forward pass for all that run; what it added to each completion. Empty when idle."""
        if self.idle:
            return []
        start = self.clock()
        held = {id(s) for s in self.scheduler.running}
        plan = self.scheduler.plan()
        for s, computed in plan.preempted:
            self.trace.events.append(Preempted(start, s.id, s.run.copy, computed))
        for work in plan.work:
            s = work.sequence
            if id(s) not in held:
                self.trace.events.append(Admitted(start, s.id, s.run.copy, s.computed, s.preemptions > 0))
        shares = tuple(
            Share(w.sequence.id, w.sequence.run.copy, w.tokens, w.sequence.computed, w.yields) for w in plan.work
        )
        deltas = self._run(plan) if plan.work else []
        pool, now = self.cache.tables.pool, self.clock()
        self.trace.events.append(
            Stepped(now, start, self._steps, shares, len(self.scheduler.waiting), pool.in_use, pool.evictable, pool.free)
        )
        self._steps += 1
        for delta in deltas:
            self._unread[delta.prompt].append(delta)
            if delta.finish_reason:
                run = next(s.run for s in self._requests[delta.prompt] if s.run.copy == delta.copy)
                self.trace.events.append(Ended(now, delta.prompt, delta.copy, delta.finish_reason, run.sampled))
        return deltas

    def _run(self, plan: Plan) -> list[Delta]:
        yielding = [work.sequence for work in plan.work if work.yields]
        logits_RV = self.executor.run(plan)
        self.scheduler.computed(plan)
        deltas = []
        for sequence, logits_V in zip(yielding, logits_RV):
            for member in [sequence, *self._forks(sequence)]:
                deltas.append(self._sample(member, logits_V))
        return deltas

    def _forks(self, sequence: Sequence) -> list[Sequence]:
        """The other completions of a request, made when its prompt is computed for the first time."""
        request, family = sequence.run.request, self._requests[sequence.id]
        if sequence.run.sampled or len(family) == request.n:
            return []
        for copy in range(1, request.n):
            run = Run.start(request, sequence.id, copy, self.cache.fork(sequence.run.seq), self.model.tokenizer)
            twin = Sequence(run, sequence.arrival, sequence.priority, sequence.salt)
            self.scheduler.join(twin, sequence.computed)
            family.append(twin)
        return family[1:]

    def _sample(self, sequence: Sequence, logits_V: Any) -> Delta:
        run = sequence.run
        try:
            token_id = run.sampler.choose(logits_V, run.ids)
            delta = run.take(token_id, run.sampler.logprob(token_id, logits_V, run.ids))
        except RequestError:  # its own logits are broken; nobody else's are
            delta = self._end(run, "error")
        if run.finished:
            self.scheduler.finish(sequence)
        return delta

    def _end(self, run: Run, reason: str) -> Delta:
        """End a completion from outside, with whatever text was held back."""
        run.finished = reason
        run.deltas.append(Delta(run.prompt, run.copy, run.text.finish() if run.text else "", finish_reason=reason))
        return run.deltas[-1]

    def abort(self, number: int) -> None:
        """End a request now and give back what it holds; nothing happens if it has ended. Unknown ids raise."""
        now = self.clock()
        for sequence in self._known(number):
            if sequence.state is not State.FINISHED:
                self.scheduler.finish(sequence)
                self._unread[number].append(self._end(sequence.run, "abort"))
                self.trace.events.append(Ended(now, number, sequence.run.copy, "abort", sequence.run.sampled))

    def _known(self, number: int) -> list[Sequence]:
        if number not in self._requests:
            raise RequestError(f"no request {number}; add() gave out {len(self._requests)} ids, from 0")
        return self._requests[number]

    def done(self, number: int) -> bool:
        """Whether all completions of a request have ended."""
        return all(s.state is State.FINISHED for s in self._known(number))

    def stream(self, number: int) -> Iterator[Delta]:
        """Deltas of one request as they come, stepping the engine (and so everybody) while there are none.

        Closing the iterator early aborts the request.
        """
        self._known(number)
        try:
            while self._unread[number] or not self.done(number):
                if self._unread[number]:
                    yield self._unread[number].popleft()
                else:
                    self.step()
        finally:
            self.abort(number)

    def results(self, number: int) -> list[Completion]:
        """The completions of a request that has ended."""
        if not self.done(number):
            raise RequestError(f"request {number} is still running; step() the engine until done({number})")
        return [s.run.completion(kept=False) for s in self._requests[number]]

    def generate(self, prompts: Seq[Prompt], **settings: Any) -> list[Completion]:
        """Serve all prompts together; the first completion of each. Settings as in ``add``.

        All are checked and taken in before any runs: if one is refused, none of them is left behind.
        """
        numbers: list[int] = []
        try:
            for prompt in prompts:
                numbers.append(self.add(prompt, **settings))
        except RequestError:
            for number in numbers:
                self.abort(number)
            raise
        while not all(self.done(number) for number in numbers):
            self.step()
        return [self.results(number)[0] for number in numbers]
