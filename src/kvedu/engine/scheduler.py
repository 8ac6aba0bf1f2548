"""Who runs in the next step, and how many tokens of each: continuous batching with chunked prefill.

The scheduler knows tokens and blocks, not tensors: the engine runs its plans on a model, the
simulator on a clock.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import Iterable

from kvedu.engine.blocks import Blocks
from kvedu.engine.order import Admission, Order, by_priority, continuous, first_come, static
from kvedu.engine.plan import LetIn, Plan, SentBack, Work
from kvedu.engine.preempt import Preemption, Recompute
from kvedu.engine.sequence import Sequence, State
from kvedu.errors import RequestError

__all__ = ["Plan", "Scheduler", "Work", "by_priority", "continuous", "first_come", "static"]

_by_rank = attrgetter("rank")


class Scheduler:
    """Decodes first, then prompts that are under way, then newcomers, within a budget of tokens a step.

    ``max_running`` sequences hold blocks at a time; a step computes at most ``token_budget`` tokens, of which
    one sequence's prompt takes at most ``chunk``. The bound on waiting: every running sequence
    that decodes is in *every* step until it ends or is preempted, since the budget covers all decodes before
    any prompt gets a token; so however long a prompt is, it delays a decode by no more than a step of
    ``token_budget`` tokens. Who waits is let in by ``order``; the first who does not fit holds up the line, so
    that small requests cannot keep a large one out.

    When blocks run out, the running sequence that ranks last in ``order`` is preempted and waits to come
    back: ``preempt`` says what becomes of its blocks. The first in order is never preempted, and fits alone
    (else it was refused), so something always ends.
    """

    def __init__(
        self,
        blocks: Blocks,
        *,
        max_running: int = 64,
        token_budget: int = 512,
        chunk: int | None = None,
        order: Order = first_come,
        admit: Admission = continuous,
        preempt: Preemption = Recompute(),
    ) -> None:
        if max_running < 1 or token_budget < max_running:
            raise RequestError(
                f"a step must have a token for each of {max_running} running sequences; token_budget is {token_budget}"
            )
        if chunk is not None and chunk < 1:
            raise RequestError(f"chunk must be at least 1 token, not {chunk}")
        self.blocks, self.max_running, self.token_budget = blocks, max_running, token_budget
        self.chunk, self.order, self.admit = chunk or token_budget, order, admit
        self.space = preempt.space(blocks)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        """Both by rank."""

    def add(self, sequence: Sequence) -> None:
        """Put a sequence into the waiting line. Raises ``RequestError`` if it could not run even alone."""
        if sequence.run.request.n > self.max_running:
            raise RequestError(
                f"{sequence.run.request.n} completions of one prompt run together; at most {self.max_running} can"
            )
        needed = self.blocks.blocks_for(sequence.most_tokens)
        if needed > self.blocks.n_blocks:
            raise RequestError(
                f"the request may grow to {sequence.most_tokens} cached tokens, {needed} blocks; the whole cache has "
                f"{self.blocks.n_blocks}. Ask for fewer tokens, or make the cache larger"
            )
        sequence.rank = self.order.rank(sequence)
        insort(self.waiting, sequence, key=_by_rank)

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to do."""
        return not self.waiting and not self.running

    def plan(self) -> Plan:
        """The next step. Opens sequences and preempts; the caller then computes and calls ``computed``.

        There is no work in it where all that run wait for tokens of a step in flight, their last ones. Raises ``RequestError`` if nobody runs and ``admit`` lets nobody in.
        """
        growth, budget, preempted = _Growth(self.blocks), self.token_budget, []
        decodes = [s for s in self.running if len(s.ids) + s.ahead - s.computed == 1]
        if growth.add_all(decodes):
            budget -= len(decodes)
            decodes = []
        for sequence in decodes + [s for s in self.running if len(s.ids) + s.ahead - s.computed > 1]:
            tokens = min(sequence.pending, budget, self.chunk)
            if sequence.state is not State.RUNNING or tokens < 1:
                continue
            while not growth.add(sequence, tokens):
                victim = self.running[-1]
                budget += growth.drop(victim)
                preempted.append(self._preempt(victim))
                if victim is sequence:
                    break
            else:
                budget -= tokens
        admitted = []
        if not preempted and self.waiting and self.admit(len(self.running)):
            admitted = self._admit(growth, budget)
        if not growth.tokens and not self.running:
            raise RequestError(f"{len(self.waiting)} requests wait and none runs: admit let nobody in")
        work = tuple([Work(sequence, tokens) for sequence, tokens in growth.tokens.items()])
        return Plan(work, tuple(preempted), tuple(admitted))

    def _admit(self, growth: _Growth, budget: int) -> list[LetIn]:
        """Let in newcomers while slots, budget and blocks for their whole text so far last."""
        admitted: list[LetIn] = []
        if len(self.running) >= self.max_running or budget < 1:
            return admitted
        slots = self.max_running - sum(s.slots for s in self.running)
        if slots < 1:
            return admitted
        for sequence in self.order.line(self.waiting, self.blocks):
            slots -= sequence.slots
            if slots < 0 or budget < 1:
                break
            opened = self._open(sequence, growth)
            if opened is None:
                break
            self.waiting.remove(sequence)
            self._run(sequence)
            growth.tokens[sequence] = min(sequence.pending, budget, self.chunk)
            budget -= growth.tokens[sequence]
            admitted.append(opened)
        return admitted

    def _open(self, sequence: Sequence, growth: _Growth) -> LetIn | None:
        """Give a waiting sequence what is kept of it, if the rest of it fits too; else nothing changes."""
        if sequence.parked is not None:
            more = self.blocks.blocks_for(len(sequence.ids)) - self.blocks.blocks_for(sequence.computed)
            if growth.needed + self.space.needed(sequence.parked) + more > self.blocks.available:
                return None
            sequence.run.seq, swapped = self.space.back(sequence.parked)
            sequence.parked = None
            growth.add(sequence, sequence.pending)
            return LetIn(sequence, sequence.computed, swapped)
        tokens = sequence.ids[:1] if sequence.unscored else sequence.ids
        sequence.run.seq, sequence.computed = self.blocks.add_prefix(tokens, sequence.salt)
        if not growth.add(sequence, sequence.pending):
            self.blocks.free(sequence.run.seq)
            sequence.run.seq, sequence.computed = None, 0
            return None
        return LetIn(sequence, sequence.computed, None)

    def _run(self, sequence: Sequence) -> None:
        sequence.state = State.RUNNING
        insort(self.running, sequence, key=_by_rank)

    def _preempt(self, sequence: Sequence) -> SentBack:
        self.running.remove(sequence)
        computed, swapped = sequence.computed, None
        self.blocks.remember(sequence.run.seq, sequence.ids[:computed], sequence.salt)
        out = self.space.out(sequence.run.seq) if self.space is not None and computed else None
        if out is not None:
            sequence.parked, swapped = out
        else:
            self.blocks.free(sequence.run.seq)
            sequence.computed = 0
        sequence.state, sequence.run.seq = State.WAITING, None
        sequence.preemptions += 1
        insort(self.waiting, sequence, key=_by_rank)
        return SentBack(sequence, computed, swapped)

    def computed(self, plan: Plan) -> None:
        """The step was run, or is in flight: its tokens are in the cache, and full blocks can be reused. All its inputs are known by now."""
        size = self.blocks.page_size
        for work in plan.work:
            sequence, before = work.sequence, work.context
            if sequence.state is not State.RUNNING:  # its end came to light while the step was in flight
                continue
            sequence.computed = after = before + work.tokens
            if after // size > before // size:
                self.blocks.remember(sequence.run.seq, sequence.ids[:after], sequence.salt)

    def join(self, sequence: Sequence, computed: int) -> None:
        """A fork of a running sequence runs too, on blocks that it shares."""
        sequence.computed, sequence.rank = computed, self.order.rank(sequence)
        self._run(sequence)

    def finish(self, sequence: Sequence) -> None:
        """It has ended, or is aborted: whatever it holds is given back. A second time nothing happens."""
        if sequence.state is State.RUNNING:
            self.running.remove(sequence)
            self.blocks.remember(sequence.run.seq, sequence.ids[: sequence.computed], sequence.salt)
            self.blocks.free(sequence.run.seq)
        elif sequence.state is State.WAITING:
            self.waiting.remove(sequence)
            if sequence.parked is not None:
                self.space.drop(sequence.parked)
                sequence.parked = None
        sequence.state = State.FINISHED


class _Growth:
    """New tokens per sequence that a step is to bring, and whether their blocks can be had together.

    Blocks are first counted sequence by sequence, which counts too many where sharers of a block
    write to it in the same step; only when that sum is too large are they counted jointly.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.needed = blocks, 0
        self.tokens: dict[Sequence, int] = {}

    def add_all(self, decodes: Iterable[Sequence]) -> bool:
        """Take in a token of each if they fit together; else nothing changes."""
        needed = self.blocks.blocks_needed({s.run.seq: 1 for s in decodes})
        if needed > self.blocks.available:
            return False
        self.needed, self.tokens = needed, dict.fromkeys(decodes, 1)
        return True

    def add(self, sequence: Sequence, tokens: int) -> bool:
        """Take it in if it fits; else nothing changes."""
        needed = self.needed + self.blocks.blocks_needed({sequence.run.seq: tokens})
        if needed > self.blocks.available:
            needed = self._jointly({sequence: tokens})
        if needed > self.blocks.available:
            return False
        self.tokens[sequence], self.needed = tokens, needed
        return True

    def drop(self, sequence: Sequence) -> int:
        """Leave a sequence out (it is still open); returns its tokens."""
        tokens = self.tokens.pop(sequence, 0)
        self.needed = self._jointly({})
        return tokens

    def _jointly(self, more: dict[Sequence, int]) -> int:
        return self.blocks.blocks_needed({s.run.seq: n for s, n in (self.tokens | more).items()})
