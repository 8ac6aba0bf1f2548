"""The engine: requests in, text out, one ragged step for everybody at a time."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Hashable, Iterator, Sequence as Seq

from kvedu.caches.blocks import Reuse
from kvedu.caches.kv_format import KVFormat
from kvedu.engine.depths import Depths, Measured
from kvedu.engine.drafts import Drafts
from kvedu.engine.executor import Executor
from kvedu.engine.graphs import MakeGraphs, recorder
from kvedu.engine.memory import guesses_of, measured_cache_bytes
from kvedu.engine.pages import paged_cache_for
from kvedu.engine.plan import Plan
from kvedu.engine.scheduler import Scheduler
from kvedu.engine.sequence import Sequence, State
from kvedu.engine.speculating import Speculating
from kvedu.engine.steps import Steps, end
from kvedu.engine.together import generate_together
from kvedu.engine.trace import Arrived, Ended, Trace
from kvedu.errors import RequestError
from kvedu.kernels.transfer import QUEUING
from kvedu.model.completion import Completion, Delta, Run
from kvedu.model.request import Prompt, Request, make_request
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.rounds import Round


class Engine:
    """Serves many requests with one model over one paged cache.

    ``cache_bytes`` is the budget for keys and values (None, on a GPU: ``memory_share`` of the memory that is free, less what the
    largest step takes, measured); it is never exceeded, and a request that could not fit into it even alone is refused when it comes. ``reuse`` makes the prefix policy of a page
    size (``HashReuse``, ``RadixReuse``; None for none). ``trace`` is where events go; who serves without end
    gives one that forgets, ``Trace(deque(maxlen=...))``. ``speculate`` guesses for every request that does not say
    otherwise, ``depths`` says how far (None: as far as it pays, ``Measured``). ``kv_format`` keeps keys and values in few
    bits (``KVFormat``; None: as the model computes them). Other settings are the ``Scheduler``'s.

    On a GPU decode steps are recorded and replayed (``graphs``: False never, a function makes the ``DecodeGraphs``), and the next
    step is planned and asked for while one runs (``overlap``): what a step gives then comes with the call of ``step`` after it. On a
    CPU both are off unless asked for. Neither changes an output.

    Every output equals what ``generate`` gives for the prompt alone over a cache of the same format (in fp32: token for
    token), whatever else runs, and however often it was preempted. One engine belongs to one thread;
    ``AsyncEngine`` gives it one and serves others from there.

    >>> engine = Engine(model, cache_bytes=64 * 2**20)              # doctest: +SKIP
    >>> a = engine.add("The capital of France is", max_new_tokens=8)  # doctest: +SKIP
    >>> for delta in engine.stream(a): print(delta.text, end="")     # doctest: +SKIP
    """

    def __init__(
        self,
        model: Transformer,
        *,
        cache_bytes: int | None = None,
        page_size: int = 16,
        reuse: Callable[[int], Reuse] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        trace: Trace | None = None,
        speculate: Proposer | None = None,
        depths: Depths | None = None,
        kv_format: KVFormat | None = None,
        graphs: MakeGraphs | bool | None = None,
        overlap: bool | None = None,
        memory_share: float = 0.9,
        **settings: Any,
    ) -> None:
        make_graphs, limits = recorder(model, graphs), {key: settings[key] for key in ("max_running", "token_budget") if key in settings}
        if cache_bytes is None:
            cache_bytes = measured_cache_bytes(model, share=memory_share, page_size=page_size, kv_format=kv_format, guesses=guesses_of(speculate), **limits)
        self.cache = paged_cache_for(
            model, cache_bytes, page_size, reuse, kv_format, settings.get("max_running", 64), spare=make_graphs is not None
        )
        self.model, self.clock = model, clock
        scheduler = Scheduler(self.cache, **settings)
        self.drafts = Drafts(model, speculate)
        self.speculating = Speculating(model, self.cache, depths or Measured(), clock)
        self.executor = Executor(model, self.cache, self.speculating.hidden, make_graphs and make_graphs(model, self.cache))
        self.trace = Trace() if trace is None else trace
        self.overlap = model.device.type in QUEUING if overlap is None else overlap
        self._steps = Steps(self.executor, scheduler, self.drafts, self.speculating, self.trace, clock, self.overlap)
        self._requests = self._steps.families
        self._unread: dict[int, deque[Delta]] = {}
        self._added = 0

    def add(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        sampling: Sampling = Sampling(),
        n: int = 1,
        stop: str | Seq[str] = (),
        ignore_eos: bool = False,
        prompt_logprobs: int | None = None,
        priority: int = 0,
        salt: Hashable = None,
        arrived: float | None = None,
        speculate: Proposer | bool = True,
    ) -> int:
        """Take in a request and return its id; it starts with one of the next steps.

        ``prompt_logprobs`` scores the prompt as ``generate`` does (no part of it is then reused); with
        ``max_new_tokens=0`` nothing else is done. ``priority`` matters to the order ``by_priority``; ``salt`` (an
        adapter, a tenant) keeps its prefix apart from others'; ``arrived`` is when it came, by the engine's clock,
        where that was before this call; ``speculate`` is a proposer of its own, or False for none.
        Raises ``RequestError`` for what can never be served; nobody else is disturbed.
        """
        request = make_request(
            prompt, self.model.config, self.model.tokenizer, max_new_tokens, sampling=sampling, n=n,
            stop=(stop,) if isinstance(stop, str) else tuple(stop), prompt_logprobs=prompt_logprobs,
            eos_ids=() if ignore_eos else self.model.config.eos_ids,
        )  # fmt: skip
        self._check_switch(request)
        drafting = self.drafts.choose(speculate)
        number, now = self._added, self.clock() if arrived is None else arrived
        sequence = Sequence(Run.start(request, number, 0, None, self.model.tokenizer), now, priority, salt)
        self.scheduler.add(sequence)
        self.drafts.attach(sequence, drafting)
        self._added += 1
        self._requests[number], self._unread[number] = [sequence], deque()
        self.trace.events.append(Arrived(now, number, len(request.prompt_ids), request.max_new_tokens, n))
        return number

    def _check_switch(self, request: Request) -> None:
        rope = self.model.config.rope
        if rope.switch_length is not None and request.cached_tokens > rope.switch_length:
            raise RequestError(
                f"the request may grow to {request.cached_tokens} tokens; past {rope.switch_length} the {rope.kind} RoPE "
                "changes its frequencies and cached keys turn wrong. Ask for fewer, or use generate with NoCache"
            )

    def warm(self, tokens: int, sequences: int | None = None) -> int:
        """Record now the decode steps of up to ``sequences`` texts (None: of as many as run at once), the longest of up to so many tokens;
        no request then waits for it. Returns how many recordings there are: none where steps are not recorded, as on a CPU.

        Cost: some runs of a step for each number of texts of the ladder and each width of the block table, which doubles.
        Raises ``RequestError`` while requests run.
        """
        if not self.idle:
            raise RequestError("requests are running, and a recording writes where their logits stand; warm the engine before the first, or when it is idle")
        graphs, most = self.executor.graphs, self.scheduler.max_running
        return graphs.warm(min(sequences or most, most), -(-tokens // self.cache.page_size)) if graphs else 0

    @property
    def idle(self) -> bool:
        """Whether every request has ended."""
        return self.scheduler.idle

    def step(self) -> list[Delta]:
        """One forward pass for all that run; what it added to each completion. Empty when idle.

        With ``overlap`` the pass is only asked for, and what comes is of the one before.
        """
        deltas = [] if self.idle else self._steps.step()
        for delta in deltas:
            self._unread[delta.prompt].append(delta)
        return deltas

    @property
    def scheduler(self) -> Scheduler:
        """Who plans. Another one over the same cache can be put in its place before a request has come."""
        return self._steps.scheduler

    @scheduler.setter
    def scheduler(self, other: Scheduler) -> None:
        self._steps.scheduler = other

    @property
    def last_plan(self) -> Plan | None:
        """The plan of the last step that was asked for."""
        return self._steps.last_plan

    def abort(self, number: int) -> None:
        """End a request now and give back what it holds; nothing happens if it has ended. Unknown ids raise."""
        now = self.clock()
        for sequence in self._known(number):
            if sequence.state is not State.FINISHED:
                self._steps.finish(sequence)
                self._unread[number].append(end(sequence.run, "abort"))
                self.trace.events.append(Ended(now, number, sequence.copy, "abort", sequence.run.sampled))

    def forget(self, number: int) -> None:
        """Drop a request's record, and abort it if it runs; for those who serve without end. Its trace stays."""
        self.abort(number)
        del self._requests[number], self._unread[number]

    def _known(self, number: int) -> list[Sequence]:
        if number not in self._requests:
            raise RequestError(f"no request {number}; add() gave out {self._added} ids, from 0")
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

    def rounds(self, number: int) -> list[tuple[Round, ...]]:
        """What each completion's verifications did so far; none where it decodes plainly."""
        return [tuple(s.guesses.rounds) if s.guesses else () for s in self._known(number)]

    def generate(
        self,
        prompts: Seq[Prompt],
        *,
        sampling: Sampling | Seq[Sampling] = Sampling(),
        progress: bool | None = None,
        **settings: Any,
    ) -> list[Completion] | list[list[Completion]]:
        """Serve all prompts together: a ``Completion`` for each, or a list of ``n`` where n > 1. Settings as in ``add``.

        ``sampling`` is one setting for all or one for each. All are checked and taken in before any runs: if one is
        refused, or the run is interrupted, none of them is left behind. ``progress`` shows a progress line
        (None: where standard error is a terminal).
        """
        return generate_together(self, prompts, sampling, progress, settings)
