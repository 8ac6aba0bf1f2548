"""Lab 2, exercise 2: models on which each calculator is wrong."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise
from kvedu.grading.lab02._slips import can_be_built, held, names_are, said, shared_evenly, six_numbers


def each_is_wrong(case: Case, seen: dict[str, dict[str, int]]) -> str | None:
    """What a calculator says differs from the cache."""
    for name, model in seen.items():
        if said(name, model) == held(model):
            return f"calculator {name} is right on this model ({held(model):,} bytes); it does not show the slip"
    return None


EXERCISE = Exercise(
    title="Models that show a slip",
    read="book/02-memory-math",
    hint="What would have to be equal for the wrong factor to have the right value? Give a model where it is not.",
    checked="each calculator against the cache of your model, built for real",
    cases=lambda fresh: [Case("models_that_show()")],
    rules=(names_are(("a", "b", "c"), ""), six_numbers, shared_evenly, can_be_built, each_is_wrong),
)
