"""A completion as the scheduler sees it: how much of it is computed, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Hashable

from kvedu.model.completion import Run


class State(Enum):
    """WAITING to be admitted (again, if preempted) → RUNNING, with blocks → FINISHED, for whatever reason."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(eq=False)
class Sequence:
    """One completion of one request.

    There is no phase: what is left to compute is ``pending``, and a step that computes the
    last of it yields a token. A fresh prompt, a chunk of one, a decode step and a return after
    preemption (prompt and output together) differ in that number only.
    """

    run: Run
    arrival: float
    priority: int = 0
    salt: Hashable = None
    state: State = State.WAITING
    computed: int = 0
    """Tokens whose keys and values are in the cache."""
    preemptions: int = 0

    @property
    def id(self) -> int:
        """The request's id."""
        return self.run.prompt

    @property
    def ids(self) -> list[int]:
        """Prompt and output so far."""
        return self.run.ids

    @property
    def pending(self) -> int:
        """Tokens to compute before the next one can be sampled; 1 while decoding."""
        return len(self.ids) - self.computed

    @property
    def most_tokens(self) -> int:
        """Most tokens that it can ever hold in the cache: P + N - 1."""
        return self.run.request.cached_tokens
