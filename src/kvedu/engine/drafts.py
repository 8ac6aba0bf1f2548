"""Who guesses for whom: the proposers at work in an engine, and the completions that each of them guesses for."""

from __future__ import annotations

from typing import Hashable

from kvedu.engine.guesses import Acceptance, Drafting, Guesses
from kvedu.engine.sequence import Sequence
from kvedu.model.transformer import Transformer
from kvedu.speculative.draws import Draws
from kvedu.speculative.proposer import Proposer


class Drafts:
    """Proposers of one engine. ``default`` (None: nobody) guesses for the requests that name no other.

    A proposer belongs to one engine at a time: it tells texts apart by request and copy. Raises ``RequestError`` for
    one that cannot draft for this model.
    """

    def __init__(self, model: Transformer, default: Proposer | None = None) -> None:
        self.model, self.default = model, default
        self._known: dict[Proposer, Drafting] = {}
        if default is not None:
            self._drafting(default)

    def _drafting(self, proposer: Proposer) -> Drafting:
        if proposer not in self._known:
            proposer.check(self.model)
            self._known[proposer] = Drafting(proposer, tuple(proposer.taps(self.model)))
        return self._known[proposer]

    def choose(self, speculate: Proposer | bool) -> Drafting | None:
        """A request's: its own proposer, the default (True), or none (False). Raises ``RequestError`` as above."""
        proposer = self.default if speculate is True else speculate or None
        return None if proposer is None else self._drafting(proposer)

    def attach(self, sequence: Sequence, drafting: Drafting | None) -> None:
        """A completion is to be made with guesses; without, where None."""
        if drafting is not None:
            draws, acceptance = Draws(sequence.run.request.sampling, sequence.copy), Acceptance(drafting.acceptance)
            sequence.guesses = Guesses(drafting, (sequence.id, sequence.copy), draws, acceptance)
            drafting.texts += 1

    def release(self, sequence: Sequence) -> None:
        """A completion has ended. What its rounds did stays known; a second time nothing happens."""
        guesses = sequence.guesses
        if guesses is None or guesses.released:
            return
        for key in keys(sequence):
            guesses.drafting.proposer.release(key)
        guesses.released = True
        guesses.drafting.texts -= 1
        if not guesses.drafting.texts and guesses.drafting.proposer is not self.default:
            del self._known[guesses.drafting.proposer]


def keys(sequence: Sequence) -> list[Hashable]:
    """By which a proposer knows it; while its prompt is computed it stands for all completions to come."""
    if sequence.run.sampled:
        return [(sequence.id, sequence.copy)]
    return [(sequence.id, copy) for copy in range(sequence.run.request.n)]
