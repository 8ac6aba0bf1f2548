"""Lab 6, exercise 5, part two: a draft whose cache stays in step with the text."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab06 import _draft as drafts


def cases(fresh: Fresh) -> list[Case]:
    """A draft equal to its target, one that errs now and then, often, always; k from 1 to 5."""
    prompt = fresh.tokens(fresh.integer(5, 9), 97)
    what = {0: "draft equal to target", 7: "a slip at every 7th token", 3: "a slip at every 3rd", 1: "always wrong"}
    return [Case(f"{what[slips]}, k = {k}", (prompt, slips, k)) for slips, k in ((0, 1), (0, 4), (7, 3), (7, 5), (3, 4), (1, 2))]


def observe(answer: Any, prompt: list[int], slips: int, k: int) -> dict[str, Any]:
    """Ten rounds, driven; what was kept, whether the cache was in step, how many tokens were run."""
    machine = drafts.Machine(slips)
    return drafts.drive(answer(machine), machine, prompt, k, rounds=10)


def not_from_the_start(case: Case, seen: dict[str, Any]) -> str | None:
    """Each round runs what is missing and the guesses, not the whole text."""
    prompt, _, k = case.args
    most = len(prompt) + 10 * (k + 2)
    if seen["run"] <= most:
        return None
    return f"the draft ran {seen['run']} tokens in 10 rounds, and {most} would do: the cache is thrown away and filled again. Forget only what is wrong"


EXERCISE = Exercise(
    title="Mend the draft",
    defines="MendedDraft",
    read="book/06-speculative-decoding",
    hint="After a round in which everything was kept: which tokens has the machine been fed? Its `length` knows. What it has not been fed must come in the next round.",
    checked="guesses kept in each of ten rounds, whether the cache is in step at each round's start, and that no round runs the whole text again",
    cases=cases,
    observe=observe,
    compared=lambda seen: (seen["kept"], seen["in step"]),
    parts=("guesses kept in each round", "cache in step at each round's start"),
    right=drafts.Right,
    rules=(not_from_the_start,),
    mistakes=(
        Mistake(drafts.AsItWas, "after a round in which all guesses were kept, the last of them was never run, and it is counted as held: from then on the cache lacks a token"),
        Mistake(drafts.KeepsRejected, "everything that was run counts as held, rejected guesses too: forget what the text does not say"),
    ),
)
