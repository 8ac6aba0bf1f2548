"""Lab 19, exercise 5: where a query finds each token, among pages of codes, the exact tail and the step's own."""

from __future__ import annotations

import torch

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.kernels.quantized_attention import QuantizedLayout


def coded(before: int, residual: int, unit: int) -> int:
    """The library's own rule."""
    layout = QuantizedLayout(torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 4, dtype=torch.int64), residual, unit)
    return int(layout.coded(torch.tensor([before]))[0])


def place(t: int, before: int, border: int, C: int, W: int) -> tuple[str, int, int]:
    """Before the border in a page, else in the ring of the tail; the query's own token is fresh."""
    if t == before:
        return ("fresh", 0, 0)
    return ("page", t // C, t % C) if t < border else ("tail", 0, t % W)


def right(t: int, before: int, residual: int, unit: int, C: int) -> tuple[str, int, int]:
    """The tail's ring has room for ``residual + unit - 1`` tokens."""
    return place(t, before, coded(before, residual, unit), C, residual + unit - 1)


def cases(fresh: Fresh) -> list[Case]:
    """C017: tokens around the border, at the ends, with and without an exact tail, units of one."""
    made = []
    for before, residual, unit, C in ((40, 8, 16, 16), (200, 32, 16, 32), (15, 0, 16, 16), (20, 4, 1, 16), (fresh.integer(60, 99), 5, 4, 8)):
        border = coded(before, residual, unit)
        for t in sorted({0, max(0, border - 1), border, before - 1, before}):
            made.append(Case(f"token {t} of {before}, {residual} exact, units of {unit}", (t, before, residual, unit, C)))
    return made


EXERCISE = Exercise(
    title="Where a token is",
    read="book/19-quantized-pages",
    hint="First the border: how many of the `before` tokens are old enough, and how many of those fill whole units? Token t is a code where it lies before that.",
    checked="tokens around the border and at both ends of five sequences, exact tails of 0 to 32, units of 1 to 16",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda t, before, residual, unit, C: place(t, before, before // unit * unit, C, residual + unit - 1), "the last `residual` tokens are never seen as codes"),
        Mistake(lambda t, before, residual, unit, C: place(t, before, max(0, before - residual), C, residual + unit - 1), "a unit that is not complete has no codes yet: round down to whole units"),
        Mistake(lambda t, before, residual, unit, C: place(t, before, coded(before + 1, residual, unit), C, residual + unit - 1), "the new token counts among those before it; it does not"),
        Mistake(lambda t, before, residual, unit, C: place(t, before, coded(before, residual, unit), C, max(residual, 1)), "the ring has `residual + unit − 1` places: the residual, and what fills no unit yet"),
        Mistake(lambda t, before, residual, unit, C: place(t, before if t < before else -1, coded(before, residual, unit), C, residual + unit - 1), "the query's own token is not in the tail yet: it comes with the step"),
    ),
)  # fmt: skip
