"""Steps of an engine: planned, asked of the device, and their tokens taken; where that pays, one of them ahead of what is known.

A step is asked for and its tokens are taken in two halves. Between them the device works, and with ``overlap`` the
next step is planned and asked for meanwhile: the tokens that it goes on with lie on the device, nobody on the host knows them. A text
whose end comes to light only then has had one token too many computed, which nobody takes.
"""

from __future__ import annotations

from typing import Callable

from kvedu.engine.choose import Picks, Turn, choose_tokens
from kvedu.engine.drafts import Drafts
from kvedu.engine.executor import Executor
from kvedu.engine.flight import Flight
from kvedu.engine.plan import Plan, Work
from kvedu.engine.scheduler import Scheduler
from kvedu.engine.sequence import Sequence
from kvedu.engine.speculating import Speculating
from kvedu.engine.trace import Ended, Share, Stepped, Trace
from kvedu.engine.undone import undone
from kvedu.errors import RequestError
from kvedu.model.completion import Delta, Run


class Steps:
    """The steps of one executor. ``families`` has the completions of each request, by its number."""

    def __init__(
        self,
        executor: Executor,
        scheduler: Scheduler,
        drafts: Drafts,
        speculating: Speculating,
        trace: Trace,
        clock: Callable[[], float],
        overlap: bool,
    ) -> None:
        self.executor, self.scheduler, self.drafts, self.speculating = executor, scheduler, drafts, speculating
        self.trace, self.clock, self.overlap = trace, clock, overlap
        self.families: dict[int, list[Sequence]] = {}
        self.last_plan: Plan | None = None
        self._flight: Flight | None = None
        self._taken, self._landed = 0, float("-inf")

    def step(self) -> list[Delta]:
        """Ask for a step and take its tokens, or with ``overlap`` those of the step before. The scheduler must not be idle."""
        before = self._flight
        flight = self._launch(before)
        self._flight = None
        deltas = self._land(before) if before else []
        if flight is not None:
            self.scheduler.computed(flight.plan)
            if not (self.overlap and flight.may_wait):
                deltas += self._land(flight)
            elif not self.scheduler.idle:
                self._flight = flight
        return deltas

    def finish(self, sequence: Sequence) -> None:
        """A completion has ended: give back what it holds."""
        self.scheduler.finish(sequence)
        self.drafts.release(sequence)

    def _launch(self, before: Flight | None) -> Flight | None:
        """Plan a step and ask it of the device, perhaps while the one ``before`` runs. None where there is nothing to compute yet."""
        start = self.clock()
        plan = self.scheduler.plan()
        if not plan.work:
            self.trace.events += plan.events(start)
            return None
        self.last_plan = plan
        self.speculating.propose(plan, self.scheduler.token_budget)
        turns, row = [], 0
        with undone(self.trace, plan, turns, start), self.executor.run(plan, before and before.picks) as logits_RV:
            for work in plan.work:
                if work.yields:
                    turns += [Turn(member, work, row) for member in self._family(work)]
                    row += 1 + len(work.tree)
            picks = Picks(turns, logits_RV, before and before.picks) if turns else None
        for turn in turns:
            if turn.sequence is not turn.work.sequence:
                self._fork(turn)
            turn.sequence.launched()
        return Flight(plan, turns, logits_RV, picks, start)

    def _family(self, work: Work) -> list[Sequence]:
        """The sequence; and, when its prompt is computed for the first time, its other completions, which hold nothing yet."""
        sequence, request = work.sequence, work.sequence.run.request
        if sequence.run.sampled or len(self.families[sequence.id]) == request.n:
            return [sequence]
        runs = [Run.start(request, sequence.id, copy, None, self.executor.model.tokenizer) for copy in range(1, request.n)]
        return [sequence, *(Sequence(run, sequence.arrival, sequence.priority, sequence.salt) for run in runs)]

    def _fork(self, turn: Turn) -> None:
        """Another completion of a prompt joins, on the prompt's blocks."""
        (twin, work, _), first = turn, turn.work.sequence
        twin.run.seq, twin.run.prompt_logprobs = self.executor.cache.fork(first.run.seq), first.run.prompt_logprobs
        self.drafts.attach(twin, first.guesses and first.guesses.drafting)
        self.scheduler.join(twin, work.context + work.tokens)
        self.families[twin.id].append(twin)

    def _land(self, flight: Flight) -> list[Delta]:
        """Take a step's tokens: each gets its own, and those that end, or whose own logits are broken, are finished."""
        shares, due, deltas = flight.shares, flight.due, []
        for turn in flight.turns:
            turn.sequence.landed()
        for turn, choice in zip(due, choose_tokens(due, flight.logits_RV, flight.picks) if due else ()):
            run = turn.sequence.run
            if run.request.max_new_tokens == 0:
                deltas.append(end(run, "length"))
            elif isinstance(choice, RequestError):
                deltas.append(end(run, "error"))
            elif turn.sequence.guesses is None:
                deltas.append(run.take(choice.token, flight.picks.report(turn.sequence)))
            else:
                deltas += self.speculating.take(turn, choice, flight.logits_RV)
            if run.finished:
                self.finish(turn.sequence)
        if shares:
            self._record(flight, shares, deltas)
        return deltas

    def _record(self, flight: Flight, shares: tuple[Share, ...], deltas: list[Delta]) -> None:
        """The step's events. One that was asked for while another ran began, for the device, when that one had ended."""
        pool, now, start = self.executor.cache.tables.pool, self.clock(), max(flight.start, self._landed)
        self.trace.events += flight.plan.events(start)
        counts = pool.in_use, pool.evictable, pool.free
        self.trace.events.append(Stepped(now, start, self._taken, shares, len(self.scheduler.waiting), *counts))
        self.trace.events += self.speculating.stepped(flight.plan, start, now)
        self._taken, self._landed = self._taken + 1, now
        for delta in deltas:
            if delta.finish_reason:
                run = next(s.run for s in self.families[delta.prompt] if s.copy == delta.copy)
                self.trace.events.append(Ended(now, delta.prompt, delta.copy, delta.finish_reason, run.sampled))


def end(run: Run, reason: str) -> Delta:
    """End a completion from outside, with whatever text was held back."""
    run.finished = reason
    run.deltas.append(Delta(run.prompt, run.copy, run.text.finish() if run.text else "", finish_reason=reason))
    return run.deltas[-1]
