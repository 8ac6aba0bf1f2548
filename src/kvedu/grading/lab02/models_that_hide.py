"""Lab 2, exercise 2: models on which a wrong calculator is right by luck."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise
from kvedu.grading.lab02._slips import can_be_built, held, names_are, said, shared_evenly, six_numbers


def each_is_right(case: Case, seen: dict[str, dict[str, int]]) -> str | None:
    """What a calculator says equals the cache."""
    for name, model in seen.items():
        if said(name, model) != held(model):
            return f"calculator {name} says {said(name, model):,} on this model, the cache has {held(model):,}; it does not hide the slip"
    return None


EXERCISE = Exercise(
    title="Models that hide a slip",
    read="book/02-memory-math",
    hint="When is width / heads the head size? When are there as many queries in a group as there are KV heads?",
    checked="each calculator against the cache of your model, built for real",
    cases=lambda fresh: [Case("models_that_hide()")],
    rules=(
        names_are(("a", "b"), "; no model hides c, which says GiB and divides by a GB"),
        six_numbers,
        shared_evenly,
        can_be_built,
        each_is_right,
    ),
)
