"""A small exercise to grade against: the sum of rows."""

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.judge import Known, judge
from kvedu.grading.observe import outcomes
from kvedu.grading.verdict import Verdict

ROWS = Exercise(
    title="Sum of rows",
    read="book/intro",
    hint="Which axis goes?",
    checked="three shapes",
    cases=lambda fresh: [Case(f"{n} rows", (fresh.normal(n, 3), {"scale": [fresh.normal(3)]})) for n in (4, 1, 2)],
    right=lambda x, more: x.sum(dim=0) * more["scale"][0],
    mistakes=(Mistake(lambda x, more: x.mean(dim=0) * more["scale"][0], "the mean is taken"),),
    seconds=0.3,
)


def graded(answer: object, exercise: Exercise = ROWS, seed: int = 3) -> Verdict:
    return judge("lab00.rows", exercise, outcomes(exercise, answer, seed), Known(seed))


def constant(value: object) -> Exercise:
    """An exercise whose right result is a value."""
    return Exercise("constant", "", "a hint", "one value", cases=lambda fresh: [Case("the value")], right=lambda: value)


def right_rows(x: Tensor, more: dict) -> Tensor:
    return torch.einsum("nm,m->m", x, more["scale"][0])
