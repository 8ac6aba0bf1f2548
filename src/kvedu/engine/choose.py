"""The next tokens of a step: each row as it would be drawn alone, and a broken one is an error of its own."""

from __future__ import annotations

from typing import NamedTuple, Sequence as Seq

import torch
from torch import Tensor

from kvedu.engine.plan import Work
from kvedu.engine.sequence import Sequence
from kvedu.errors import RequestError
from kvedu.kernels.transfer import Coming, put
from kvedu.model.sampling import draw_rows
from kvedu.speculative.verify import Target, Verdict, exact, greedy


class Turn(NamedTuple):
    """Who is due a token by which work, and its row of the step's logits, which those of its guesses follow."""

    sequence: Sequence
    work: Work
    row: int


def plain(sequence: Sequence) -> bool:
    """Whether its next token needs no look at its logits on the host: no filter, no penalty, no report, no guesses, no scores."""
    sampling = sequence.run.request.sampling
    return sampling.unfiltered and sampling.logprobs is None and sequence.guesses is None and not sequence.unscored


class Picks:
    """What can be chosen where the logits are: the tokens stay there as inputs of the next step, and are on their way to the host.

    ``tokens``, int64: the most likely token of each of the step's R rows, then one for each turn that draws without filter.
    -1 where the largest logit is not finite.
    """

    def __init__(self, turns: Seq[Turn], logits_RV: Tensor) -> None:
        tops, tokens = logits_RV.max(dim=-1)
        drawn = [turn for turn in turns if not turn.sequence.run.request.sampling.greedy and plain(turn.sequence)]
        if drawn:
            rows = put([turn.row for turn in drawn], logits_RV.device)
            draws = draw_rows([turn.sequence.run.sampler for turn in drawn], logits_RV[rows])
            tops, tokens = torch.cat((tops, tops[rows])), torch.cat((tokens, draws))
        self.tokens = torch.where(tops.isfinite(), tokens, -1)
        self.place = {turn.sequence: turn.row for turn in turns}
        """Where each sequence's token stands in ``tokens``."""
        self.place |= {turn.sequence: len(logits_RV) + i for i, turn in enumerate(drawn)}
        self._coming = Coming(self.tokens)

    def read(self) -> list[int]:
        """The tokens, once the host has them."""
        return self._coming.read()


def choose_tokens(turns: Seq[Turn], logits_RV: Tensor, picks: Picks) -> list[Verdict | RequestError]:
    """Guesses to keep, and a token, for each turn; a ``RequestError`` for one whose rows are broken. One wait for all that are ``plain``."""
    tokens = picks.read()
    return [_choose(turn, logits_RV, tokens, picks.place[turn.sequence]) for turn in turns]


def _choose(turn: Turn, logits_RV: Tensor, tokens: list[int], place: int) -> Verdict | RequestError:
    (sequence, work, row), run, tree = turn, turn.sequence.run, turn.work.tree
    sampling, rows = run.sampler.sampling, slice(row, row + 1 + len(tree))
    if not tree and tokens[place] >= 0 and (sampling.unfiltered if sampling.greedy else plain(sequence)):
        return Verdict((), tokens[place])
    if plain(sequence):  # its logits may be the next step's by now
        return RequestError("the model's largest logit is not finite: its weights or its input are broken")
    try:
        if sampling.greedy and sampling.unfiltered and min(tokens[rows]) >= 0:
            return greedy(tree, tokens[rows])
        if sequence.guesses is not None:
            return exact(tree, Target(logits_RV[rows], tree, run.ids, sampling), sequence.guesses.draws)
        return Verdict((), run.sampler.choose(logits_RV[row], run.ids))
    except RequestError as error:
        return error
