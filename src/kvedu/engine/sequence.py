"""A completion as the scheduler sees it: how much of it is computed, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Hashable

from kvedu.caches.host_pages import Parked
from kvedu.engine.guesses import Guesses
from kvedu.model.completion import Run
from kvedu.model.sampling import TokenLogprob


class State(Enum):
    """WAITING to be admitted (again, if preempted) → RUNNING, with blocks → FINISHED, for whatever reason."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(eq=False, slots=True)
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
    """Tokens whose keys and values are in the cache, or in host memory while ``parked``."""
    ahead: int = 0
    """Tokens that are sampled but not known on the host yet, of those that will be computed; 0 unless a step is in flight."""
    preemptions: int = 0
    overtaken: int = 0
    """Requests that came later and were let in before it."""
    parked: Parked | None = None
    """What it left in host memory."""
    scores: list[TokenLogprob | None] = field(default_factory=lambda: [None])
    """Log-probabilities of the prompt's tokens so far, where they were asked for; nothing precedes the first."""
    guesses: Guesses | None = None
    """Its speculation; None where it decodes plainly."""
    rank: object = None
    """Its place in the scheduler's order, which does not change."""
    id: int = field(init=False)
    """The request's id."""
    copy: int = field(init=False)
    """Which of the request's completions it is."""
    ids: list[int] = field(init=False)
    """Prompt and output so far: the run's own list."""

    def __post_init__(self) -> None:
        self.id, self.copy, self.ids = self.run.prompt, self.run.copy, self.run.ids

    @property
    def pending(self) -> int:
        """Tokens to compute before the next one can be sampled; 1 while decoding."""
        return len(self.ids) + self.ahead - self.computed

    @property
    def most_tokens(self) -> int:
        """Most tokens that it can ever hold in the cache: P + N - 1."""
        return self.run.request.cached_tokens

    def launched(self) -> None:
        """A step that will sample a token for it was asked of the device."""
        if len(self.ids) + self.ahead < self.most_tokens:  # the last token of all is never an input
            self.ahead += 1

    def landed(self) -> None:
        """That token is known on the host."""
        self.ahead = max(0, self.ahead - 1)

    @property
    def slots(self) -> int:
        """Running sequences that it counts for: before its prompt has forked, all the completions to come."""
        return 1 if self.run.sampled or self.ahead else self.run.request.n

    @property
    def unscored(self) -> bool:
        """Whether logits of its prompt are still wanted, so that no part of it may be skipped."""
        return self.run.request.prompt_logprobs is not None and self.run.prompt_logprobs is None
