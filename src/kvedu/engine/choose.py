"""The next tokens of a step: each row as it would be drawn alone, and a broken one is an error of its own."""

from __future__ import annotations

from typing import NamedTuple, Sequence as Seq

import torch
from torch import Tensor

from kvedu.engine.plan import Work
from kvedu.engine.sequence import Sequence
from kvedu.errors import RequestError
from kvedu.kernels.transfer import Coming, put
from kvedu.model.draw_rows import Draw, draw_rows, report_row
from kvedu.model.sampling import BROKEN, TokenLogprob, reported
from kvedu.speculative.verify import Target, Verdict, exact, greedy


class Turn(NamedTuple):
    """Who is due a token by which work, and its row of the step's logits, which those of its guesses follow."""

    sequence: Sequence
    work: Work
    row: int


class Picks:
    """What can be chosen where the logits are: the tokens stay there as inputs of the next step, and are on their way to the host.

    ``tokens``, int64: the most likely token of each of the step's R rows, then one for each turn that draws or has a penalty.
    -1 where the largest logit is not finite. ``before``: the tokens of a step in flight that this one continues.
    """

    def __init__(self, turns: Seq[Turn], logits_RV: Tensor, before: Picks | None = None) -> None:
        tops, tokens = logits_RV.max(dim=-1)
        self.tokens = torch.where(tops.isfinite(), tokens, -1)
        self.place = {turn.sequence: turn.row for turn in turns}
        """Where each sequence's token stands in ``tokens``."""
        alone = {turn: _draw(turn.sequence, before) for turn in turns if turn.sequence.guesses is None}
        drawn = [turn for turn, draw in alone.items() if not (draw.sampler.sampling.greedy and draw.sampler.sampling.unfiltered)]
        if drawn:
            rows = put([turn.row for turn in drawn], logits_RV.device)
            self.tokens = torch.cat((self.tokens, draw_rows([alone[turn] for turn in drawn], logits_RV[rows])))
            self.place |= {turn.sequence: len(logits_RV) + i for i, turn in enumerate(drawn)}
        self._coming = Coming(self.tokens)
        self._reports = {
            turn.sequence: Coming(report_row(draw, logits_RV[turn.row], self.tokens[self.place[turn.sequence]]))
            for turn, draw in alone.items()
            if draw.sampler.sampling.logprobs is not None
        }

    def read(self) -> list[int]:
        """The tokens, once the host has them."""
        return self._coming.read()

    def report(self, sequence: Sequence) -> TokenLogprob | None:
        """What is reported of a sequence's token, where it asked for that and nobody guesses for it."""
        coming = self._reports.get(sequence)
        return coming and reported(coming.read())


def _draw(sequence: Sequence, before: Picks | None) -> Draw:
    """Its sampler; with a penalty, also its tokens so far, of which a step in flight may have the last."""
    sampler = sequence.run.sampler
    if sampler.sampling.repetition_penalty == 1:
        return Draw(sampler)
    late = before is not None and sequence in before.place
    return Draw(sampler, tuple(sequence.ids), before.tokens[before.place[sequence]] if late else None)


def choose_tokens(turns: Seq[Turn], logits_RV: Tensor, picks: Picks) -> list[Verdict | RequestError]:
    """Guesses to keep, and a token, for each turn; a ``RequestError`` for one whose rows are broken. One wait for all for whom nobody guesses."""
    tokens = picks.read()
    return [_choose(turn, logits_RV, tokens, picks.place[turn.sequence]) for turn in turns]


def _choose(turn: Turn, logits_RV: Tensor, tokens: list[int], place: int) -> Verdict | RequestError:
    (sequence, work, row), run, tree = turn, turn.sequence.run, turn.work.tree
    sampling, rows = run.sampler.sampling, slice(row, row + 1 + len(tree))
    if sequence.guesses is None:  # its logits may be the next step's by now
        return Verdict((), tokens[place]) if tokens[place] >= 0 else RequestError(BROKEN)
    try:
        if sampling.greedy and sampling.unfiltered and min(tokens[rows]) >= 0:
            return greedy(tree, tokens[rows])
        return exact(tree, Target(logits_RV[rows], tree, run.ids, sampling), sequence.guesses.draws)
    except RequestError as error:
        return error
