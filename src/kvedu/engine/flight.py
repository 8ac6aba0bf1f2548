"""A step that was asked of the device and whose tokens are not taken yet."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kvedu.engine.choose import Picks, Turn
from kvedu.engine.plan import Plan
from kvedu.engine.sequence import State
from kvedu.engine.trace import Share


@dataclass(frozen=True, eq=False)
class Flight:
    """``start``: when its plan was begun. ``turns`` are due a token; ``picks`` is None where nobody is."""

    plan: Plan
    turns: list[Turn]
    logits_RV: Tensor
    picks: Picks | None
    start: float

    @property
    def may_wait(self) -> bool:
        """Whether the next step can be asked for before this one's tokens are known: nobody guesses, so all are chosen on the device."""
        return all(work.sequence.guesses is None for work in self.plan.work)

    @property
    def due(self) -> list[Turn]:
        """Turns of those who have not ended since; the tokens of the others are surplus, and nobody takes them."""
        return [turn for turn in self.turns if turn.sequence.state is not State.FINISHED]

    @property
    def shares(self) -> tuple[Share, ...]:
        """What a trace records: the work, but for texts that have ended since."""
        return tuple([work.share for work in self.plan.work if work.sequence.state is not State.FINISHED])
