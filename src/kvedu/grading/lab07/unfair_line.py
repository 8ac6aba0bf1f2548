"""Lab 7, exercise 4a: a line on which the planted server lets the first to come end last."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Unfit, call
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab07._server import LIMIT, Server, Sound, run

PLACES, BUDGET, MOST = 32, 16, 12


def cases(fresh: Fresh) -> list[Case]:
    """The lab's server."""
    return [Case(f"{PLACES} places, {BUDGET} tokens a step")]


def observe(answer: Any) -> Any:
    """The line, and the order in which its jobs end on the planted and on a sound server."""
    line = call(answer)
    pairs = type(line) is list and all(type(pair) is tuple and len(pair) == 2 and all(type(n) is int and n > 0 for n in pair) for pair in line)
    if not pairs or not line:
        raise Unfit("a list of pairs (prompt tokens, new tokens) was wanted, whole numbers of 1 or more")
    if len(line) > MOST:
        raise Unfit(f"at most {MOST} jobs, please; {len(line)} came")
    fits = all(prompt + new - 1 <= PLACES for prompt, new in line)
    arrivals = [(0, prompt, new) for prompt, new in line]
    return line, fits, *(run(kind(PLACES, BUDGET), arrivals)[1] if fits else [] for kind in (Server, Sound))


def fits_alone(case: Case, seen: Any) -> str | None:
    """Each job can be served at all."""
    return None if seen[1] else f"a job needs prompt + new - 1 places, and there are {PLACES}: one of these cannot run even alone"


def is_alike(case: Case, seen: Any) -> str | None:
    """The first has no excuse."""
    first, *others = seen[0]
    if not others:
        return "the first is alone; nobody else ends before it"
    longer = [job for job in others if sum(job) < sum(first) or job[1] < first[1]]
    return f"the first job, {first}, is longer than {longer[0]}: that it ends late proves nothing. Make it no longer than any other" if longer else None


def ends_last(case: Case, seen: Any) -> str | None:
    """On the planted server the first ends after all others."""
    order = seen[2]
    if len(order) < len(seen[0]):
        return f"not all of them end within {LIMIT} steps"
    return None if order[-1] == 0 else f"on this server the jobs end in the order {order}; job 0 is not the last. Is it ever sent back?"


EXERCISE = Exercise(
    title="The first shall be last",
    read="book/07-continuous-batching",
    hint="Nothing shows where everybody fits. Let several jobs with short prompts grow until the places run out. Who is sent back, and where does it wait?",
    checked="on the given server the first job, no longer than any other, ends after all others",
    cases=cases,
    observe=observe,
    rules=(fits_alone, is_alike, ends_last),
)
