"""Who runs in the next step, and how many tokens of each: continuous batching with chunked prefill.

The scheduler knows tokens and blocks, not tensors: the engine runs its plans on a model, the
simulator on a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Callable, Hashable, Protocol, Sequence as Seq

from kvedu.engine.sequence import Sequence, State
from kvedu.errors import RequestError


class Blocks(Protocol):
    """What the scheduler needs of a cache. ``PagedCache`` is one; a simulation's has no tensors."""

    def add_prefix(self, tokens: Seq[int], salt: Hashable = None) -> tuple[int, int]:
        """Open a sequence on what is remembered of its tokens: (id, tokens reused)."""

    def free(self, seq: int) -> None:
        """Close a sequence."""

    def remember(self, seq: int, tokens: Seq[int], salt: Hashable = None) -> None:
        """Offer its full blocks, which hold these tokens, for reuse."""

    def blocks_needed(self, growth: dict[int, int]) -> int:
        """Blocks that these numbers of new tokens would take."""

    def blocks_for(self, tokens: int) -> int:
        """Blocks of a sequence of this many tokens."""

    @property
    def available(self) -> int:
        """Blocks that can be taken now."""

    @property
    def n_blocks(self) -> int:
        """All blocks there are."""


Order = Callable[[Sequence], object]
"""Sort key of the waiting line: smallest first."""


def first_come(sequence: Sequence) -> object:
    """First come, first served."""
    return sequence.arrival, sequence.id, sequence.run.copy


def by_priority(sequence: Sequence) -> object:
    """Smallest priority number first; within one, first come."""
    return sequence.priority, first_come(sequence)


Admission = Callable[[int], bool]
"""Whether newcomers are let in beside this many running sequences."""


def continuous(running: int) -> bool:
    """A free slot is filled at once (Yu et al. 2022, Orca)."""
    return True


def static(running: int) -> bool:
    """A new batch starts when the last sequence of the old one has ended. For comparison."""
    return running == 0


@dataclass(frozen=True)
class Work:
    """One sequence's share of a step: its next ``tokens`` pending tokens."""

    sequence: Sequence
    tokens: int

    @property
    def yields(self) -> bool:
        """Whether the step ends with a token sampled for it."""
        return self.tokens == self.sequence.pending


@dataclass(frozen=True)
class Plan:
    """One step: what runs, and who was sent back to wait to make room, with the tokens that each had in the cache."""

    work: tuple[Work, ...]
    preempted: tuple[tuple[Sequence, int], ...] = ()


class Scheduler:
    """Decodes first, then prompts that are under way, then newcomers, within a budget of tokens a step.

    ``max_running`` sequences hold blocks at a time; a step computes at most ``token_budget`` tokens, of which
    one sequence's prompt takes at most ``chunk``. The bound on waiting: every running sequence
    that decodes is in *every* step until it ends or is preempted, since the budget covers all decodes before
    any prompt gets a token; so however long a prompt is, it delays a decode by no more than a step of
    ``token_budget`` tokens.

    When blocks run out, the running sequence that stands last in ``order`` is preempted: its blocks
    are given back (and remembered, where there is reuse) and it waits to be computed again. The first
    in order is never preempted, and fits alone (else it was refused), so something always ends.
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
    ) -> None:
        if max_running < 1 or token_budget < max_running:
            raise RequestError(
                f"a step must have a token for each of {max_running} running sequences; token_budget is {token_budget}"
            )
        if chunk is not None and chunk < 1:
            raise RequestError(f"chunk must be at least 1 token, not {chunk}")
        self.blocks, self.max_running, self.token_budget = blocks, max_running, token_budget
        self.chunk, self.order, self.admit = chunk or token_budget, order, admit
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

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
        self.waiting.append(sequence)

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to do."""
        return not self.waiting and not self.running

    def plan(self) -> Plan:
        """The next step. Opens sequences and preempts; the caller then computes and calls ``computed``."""
        preempted: dict[Sequence, int] = {}
        growth = _Growth(self.blocks)
        budget = self.token_budget
        in_order = sorted(self.running, key=self.order)
        for sequence in [s for s in in_order if s.pending == 1] + [s for s in in_order if s.pending > 1]:
            tokens = min(sequence.pending, budget, self.chunk)
            if sequence in preempted or tokens < 1:
                continue
            while not growth.add(sequence.run.seq, tokens):
                victim = max(self.running, key=self.order)
                preempted[victim] = victim.computed
                budget += growth.drop(victim.run.seq)
                self._preempt(victim)
                if victim is sequence:
                    break
            else:
                budget -= tokens
        if not preempted and self.waiting and self.admit(len(self.running)):
            self._admit(growth, budget)
        by_seq = {s.run.seq: s for s in self.running}
        work = tuple(Work(by_seq[seq], tokens) for seq, tokens in growth.tokens.items())
        return Plan(work, tuple(preempted.items()))

    def _admit(self, growth: _Growth, budget: int) -> None:
        """Let in newcomers while slots, budget and blocks for their whole text so far last."""
        slots = self.max_running - sum(map(_slots, self.running))
        if slots < 1 or budget < 1:
            return
        for sequence in sorted(self.waiting, key=self.order):
            slots -= _slots(sequence)
            if slots < 0 or budget < 1:
                break
            seq, reused = self.blocks.add_prefix(sequence.ids, sequence.salt)
            rest = len(sequence.ids) - reused
            if not growth.add(seq, rest):
                self.blocks.free(seq)
                break
            sequence.run.seq, sequence.computed, sequence.state = seq, reused, State.RUNNING
            self.waiting.remove(sequence)
            self.running.append(sequence)
            growth.tokens[seq] = min(rest, budget, self.chunk)
            budget -= growth.tokens[seq]

    def _preempt(self, sequence: Sequence) -> None:
        self._let_go(sequence)
        sequence.state, sequence.computed, sequence.run.seq = State.WAITING, 0, None
        sequence.preemptions += 1
        self.waiting.appendleft(sequence)

    def _let_go(self, sequence: Sequence) -> None:
        self.blocks.remember(sequence.run.seq, sequence.ids[: sequence.computed], sequence.salt)
        self.blocks.free(sequence.run.seq)
        self.running.remove(sequence)

    def computed(self, plan: Plan) -> None:
        """The step was run: its tokens are in the cache, and full blocks can be reused."""
        for work in plan.work:
            sequence = work.sequence
            sequence.computed += work.tokens
            self.blocks.remember(sequence.run.seq, sequence.ids[: sequence.computed], sequence.salt)

    def join(self, sequence: Sequence, computed: int) -> None:
        """A fork of a running sequence runs too, on blocks that it shares."""
        sequence.state, sequence.computed = State.RUNNING, computed
        self.running.append(sequence)

    def finish(self, sequence: Sequence) -> None:
        """It has ended, or is aborted: whatever it holds is given back. A second time nothing happens."""
        if sequence.state is State.RUNNING:
            self._let_go(sequence)
        elif sequence.state is State.WAITING:
            self.waiting.remove(sequence)
        sequence.state = State.FINISHED


def _slots(sequence: Sequence) -> int:
    """Slots of ``max_running`` that it takes: before a prompt has forked, one for each of its completions to come."""
    return 1 if sequence.run.sampled else sequence.run.request.n


class _Growth:
    """New tokens per cache sequence that a step is to bring, and whether their blocks can be had together.

    Blocks are first counted sequence by sequence, which counts too many where sharers of a block
    write to it in the same step; only when that sum is too large are they counted jointly.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.tokens, self._needed = blocks, {}, 0

    def add(self, seq: int, tokens: int) -> bool:
        """Take it in if it fits; else nothing changes."""
        needed = self._needed + self.blocks.blocks_needed({seq: tokens})
        if needed > self.blocks.available:
            needed = self.blocks.blocks_needed(self.tokens | {seq: tokens})
        if needed > self.blocks.available:
            return False
        self.tokens[seq], self._needed = tokens, needed
        return True

    def drop(self, seq: int) -> int:
        """Leave a sequence out (it is still open); returns its tokens."""
        tokens = self.tokens.pop(seq, 0)
        self._needed = self.blocks.blocks_needed(self.tokens)
        return tokens
