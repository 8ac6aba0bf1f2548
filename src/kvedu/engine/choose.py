"""The next tokens of a step: each row as it would be drawn alone, and a broken one is an error of its own."""

from __future__ import annotations

from typing import NamedTuple, Sequence as Seq

from torch import Tensor

from kvedu.engine.plan import Work
from kvedu.engine.sequence import Sequence
from kvedu.errors import RequestError
from kvedu.speculative.verify import Target, Verdict, exact, greedy


class Turn(NamedTuple):
    """Who is due a token by which work, and its row of the step's logits, which those of its guesses follow."""

    sequence: Sequence
    work: Work
    row: int


def choose_tokens(turns: Seq[Turn], logits_RV: Tensor) -> list[Verdict | RequestError]:
    """Guesses to keep, and a token, for each; a ``RequestError`` for one whose rows are broken. Greedy rows are taken together."""
    tops, best = logits_RV.max(dim=-1)
    finite, best = tops.isfinite().tolist(), best.tolist()
    return [_choose(turn, logits_RV, best, finite) for turn in turns]


def _choose(turn: Turn, logits_RV: Tensor, best: list[int], finite: list[bool]) -> Verdict | RequestError:
    (sequence, work, row), run, tree = turn, turn.sequence.run, turn.work.tree
    sampling, rows = run.sampler.sampling, slice(row, row + 1 + len(tree))
    try:
        if sampling.greedy and sampling.repetition_penalty == 1 and all(finite[rows]):
            return greedy(tree, best[rows])
        if sequence.guesses is not None:
            return exact(tree, Target(logits_RV[rows], tree, run.ids, sampling), sequence.guesses.draws)
        return Verdict((), run.sampler.choose(logits_RV[row], run.ids))
    except RequestError as error:
        return error
