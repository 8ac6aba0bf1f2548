"""Lab 7, challenge: the budget that keeps a promise, and what the newcomer pays for it."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Whole microseconds: a limit that is met exactly, just missed, a prompt that fills its chunks or not, nobody decoding."""
    made = [(1000, 0, 5000, 100, 15_000), (1000, 14, 8600, 100, 15_000), (50, 14, 8600, 100, 15_000), (51, 14, 8600, 100, 15_000), (51, 14, 8600, 100, 14_999)]
    for _ in range(4):
        made.append((fresh.integer(100, 4000), fresh.integer(0, 12), fresh.integer(2000, 9000), fresh.integer(40, 400), fresh.integer(18_000, 40_000)))
    return [Case(f"prompt {p}, {d} decode, a step {f} + {e} a token, limit {m} µs", (p, d, f, e, m)) for p, d, f, e, m in made]


def budget(*, exact: bool = True, shared: bool = True, last: str = "part", free: bool = False) -> Any:
    """An answer with one part changed; unchanged it is right."""

    def answer(prompt: int, decodes: int, fixed: int, each: int, limit: int) -> tuple[int, int, int]:
        most = (limit - fixed) // each if exact else limit // each
        chunk = most - decodes if shared else most
        steps = -(-prompt // chunk) if last != "down" else max(1, prompt // chunk)
        tokens = prompt + steps * decodes if last != "full" else steps * most
        if last == "limit":
            return most, steps, steps * limit
        tokens -= steps * decodes if free else 0
        return most, steps, steps * fixed + tokens * each

    return answer


EXERCISE = Exercise(
    title="A budget that keeps a promise",
    read="book/07-continuous-batching",
    hint="A full step takes fixed + each * budget. The prompt gets budget - decodes of it. The last step is seldom full.",
    checked="budget, steps and time for limits met exactly and just missed, full and partly filled last chunks",
    cases=cases,
    right=budget(),
    parts=("budget", "steps", "microseconds to the first token"),
    optional=True,
    mistakes=(
        Mistake(budget(exact=False), "a step costs its fixed part too: take it off the limit first"),
        Mistake(budget(shared=False), "the whole budget is given to the prompt; those who decode take one token each of it"),
        Mistake(budget(shared=False, free=True), "those who decode are not there: each takes a token of every step, from the budget and from the time"),
        Mistake(budget(free=True), "the time of those who decode is forgotten: each is a token more in every step"),
        Mistake(budget(last="limit"), "each step is taken to last as long as the limit allows; a step lasts fixed + each * its tokens"),
        Mistake(budget(last="down"), "the last chunk, not full, is not counted as a step: round up"),
        Mistake(budget(last="full"), "the last step is taken for full; it computes only what is left of the prompt"),
    ),
)
