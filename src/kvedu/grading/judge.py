"""Judge what was seen of an answer: this part runs on the grader's side and never calls the learner's code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvedu.grading.compare import Difference, difference
from kvedu.grading.exercise import Case, Exercise, Mistake, Rule, call
from kvedu.grading.fresh import Fresh
from kvedu.grading.observe import Changed, Raised, Stopped, outcomes
from kvedu.grading.verdict import Verdict

NOT_WRITTEN = "Write your code in place of `raise NotImplementedError(...)`, run the cell, then run this check again."


class Known:
    """What is seen of the known answers of exercises on one seed, each put to work once."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._seen: dict[tuple[str, int], list[Any]] = {}

    def seen(self, exercise: Exercise, answer: Any) -> list[Any]:
        """What is seen of a known answer of this exercise."""
        key = exercise.title, id(answer)
        if key not in self._seen:
            self._seen[key] = outcomes(exercise, answer, self.seed)
        return self._seen[key]


def judge(name: str, exercise: Exercise, seen: Sequence[Any], known: Known) -> Verdict:
    """The verdict on what was seen of an answer on the cases of the seed of ``known``.

    First whether everything ran, then whether it equals what the right answer gives (if not: whether it
    equals a known mistake on *every* case), then the rules.
    """
    cases = list(exercise.cases(Fresh(known.seed)))

    def fail(sentence: str, case: Case | None = None, found: Difference | None = None, **more: Any) -> Verdict:
        where = " – ".join(x for x in (case.name if case else "", found.where if found else "") if x)
        came, wanted = (found.came, found.wanted) if found else ("", "")
        values = {"hint": exercise.hint, "read": exercise.read} | more
        return Verdict(name, False, sentence, where, came, wanted, **values)

    if seen and isinstance(seen[-1], Stopped):
        at = cases[min(len(seen) - 1, len(cases) - 1)]
        return fail(f"your code did not end within {exercise.seconds:g} seconds: does a loop go on for ever?", at)
    if any(isinstance(x, Raised) and x.kind == "NotImplementedError" for x in seen):
        return fail(NOT_WRITTEN, written=False, hint="", read="")
    if len(seen) != len(cases):
        return fail("the check did not come to its end")
    for case, x in zip(cases, seen):
        if isinstance(x, Changed):
            which = f"its argument number {x.argument + 1}" if exercise.observe is call else "something that it was given"
            return fail(f"your code changes {which}, which belongs to the caller: make something new instead", case)

    found = _first_difference(exercise, cases, seen, known)
    if found is not None:
        case, x, gap, wrong = found
        if mistake := _mistake(exercise, seen, known):
            return fail(mistake.sentence, case, gap, mistake=True, hint=mistake.hint or exercise.hint)
        if isinstance(x, Raised):
            return fail(_told(x), case)
        return fail(_untold(gap, wrong, len(cases)), case, gap)
    for rule in exercise.rules:
        for case, x in zip(cases, seen):
            if sentence := _broken(rule, case, x):
                return fail(sentence, case)
    return Verdict(name, True, exercise.checked)


def _broken(rule: Rule, case: Case, x: Any) -> str | None:
    """A rule's sentence; something that a rule cannot even read is broken too."""
    try:
        return rule(case, x)
    except Exception as error:
        return f"the result cannot be read, it is not of the form that was asked for ({type(error).__name__}: {error})"


def _first_difference(
    exercise: Exercise, cases: Sequence[Case], seen: Sequence[Any], known: Known
) -> tuple[Case, Any, Difference | None, int] | None:
    """The first case that went wrong, what was seen, its difference (None for an exception), and how many went wrong."""
    wants = [None] * len(cases) if exercise.right is None else known.seen(exercise, exercise.right)
    found = []
    for case, x, want in zip(cases, seen, wants, strict=True):
        if isinstance(x, Raised) and not isinstance(want, Raised):
            found.append((case, x, None))
        elif exercise.right is not None and (gap := _gap(exercise, x, want)):
            found.append((case, x, gap))
    return (*found[0], len(found)) if found else None


def _gap(exercise: Exercise, x: Any, want: Any) -> Difference | None:
    """The difference of two things seen; exceptions are equal where their types are."""
    if isinstance(x, Raised) or isinstance(want, Raised):
        kinds = [y.kind if isinstance(y, Raised) else "a result" for y in (x, want)]
        texts = [y.message if isinstance(y, Raised) and y.kind == "Unfit" else "" for y in (x, want)]
        return None if kinds[0] == kinds[1] and texts[0] == texts[1] else Difference("", *kinds)
    return difference(exercise.compared(x), exercise.compared(want), exercise.tolerance, exercise.parts)


def _mistake(exercise: Exercise, seen: Sequence[Any], known: Known) -> Mistake | None:
    """The first known mistake that explains everything that was seen."""
    for mistake in exercise.mistakes:
        theirs = known.seen(exercise, mistake.answer)
        if len(theirs) == len(seen) and not any(_gap(exercise, a, b) for a, b in zip(seen, theirs)):
            return mistake
    return None


def _untold(gap: Difference, wrong: int, cases: int) -> str:
    """What can be said of a difference that no known mistake explains."""
    if gap.reason:
        return f"the result is of another kind or shape than wanted: {gap.reason}"
    return "the result is not the right one" + (f" in {wrong} of {cases} cases; this is the first" if cases > 1 else "")


def _told(raised: Raised) -> str:
    if raised.kind == "Unfit":
        return raised.message
    told = f"your code raised {raised.kind}: {raised.message}" if raised.message else f"your code raised {raised.kind}, without a message"
    if raised.kind == "TypeError" and "positional argument" in raised.message and not raised.place:
        told += ": keep the arguments as the exercise gives them"
    return f"{told} ({raised.place})" if raised.place else told
