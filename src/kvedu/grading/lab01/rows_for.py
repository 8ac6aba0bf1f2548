"""Lab 1, challenge: a growth rule that copies little and reserves little."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Unfit, call
from kvedu.grading.fresh import Fresh

MOST_GROWTHS = 20_000


def cases(fresh: Fresh) -> list[Case]:
    """A long prompt into a short buffer, then growth token by token."""
    return [
        Case("a prompt of 5,000 tokens at once", (10, 5_000, 5_000)),
        *[Case(f"{n:,} tokens one by one", (0, 1, n)) for n in (1_000, 10_000 + fresh.integer(0, 999), 100_000)],
    ]


def observe(answer: Any, rows: int, first: int, last: int) -> Any:
    """Every growth as (rows before, rows wanted, rows after)."""
    growths = []
    for wanted in range(first, last + 1):
        if wanted > rows:
            new = call(answer, rows, wanted)
            if type(new) is not int:
                raise Unfit(f"rows are whole: an int was wanted, {new!r} came".split("\n")[0][:200])
            if new < wanted:
                raise Unfit(f"the new buffer has {new:,} rows and {wanted:,} are wanted: a step may bring many tokens at once")
            growths.append([rows, wanted, new])
            rows = new
            if len(growths) == MOST_GROWTHS:
                break
    return growths


def reserves_little(case: Case, growths: list[list[int]]) -> str | None:
    """At most one and a half times what is wanted, plus 16."""
    for _, wanted, new in growths:
        if new > 1.5 * wanted + 16:
            return f"{new:,} rows for {wanted:,} tokens: more than one and a half times, plus 16, are reserved"
    return None


def copies_little(case: Case, growths: list[list[int]]) -> str | None:
    """At most 3 rows for every token."""
    tokens, copied = case.args[2], sum(rows for rows, _, _ in growths)
    if copied <= 3 * tokens or case.args[1] > 1:
        return None
    return f"{copied:,} rows are copied, {copied / tokens:.1f} per token. Growing by a constant copies O(n^2); grow by a factor"


EXERCISE = Exercise(
    title="Fewest bytes copied",
    read="book/01-what-is-the-kv-cache",
    hint="If each buffer is r times as long as the one before, the copies form a geometric series. What is its sum?",
    checked="at most 3 rows copied per token up to 100,000 tokens, within the reserve, and a long prompt at once",
    cases=cases,
    observe=observe,
    rules=(reserves_little, copies_little),
    optional=True,
)
