"""Lab 5, challenge: the order of waiting requests in which most is reused."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Unfit
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab05._tree import common


def cases(fresh: Fresh) -> list[Case]:
    """Requests of a few kinds, mixed; with long ones that share little and short ones that share much; and a tree of two levels."""

    def mixed(stems: list[list[int]], each: int, low: int, high: int) -> list[list[int]]:
        return fresh.shuffled([stem + fresh.tokens(fresh.integer(low, high), 50) for stem in stems for _ in range(each)])

    stems = [fresh.tokens(n, 50) for n in (3, 6, 4)]
    deep = [stem + fresh.tokens(3, 50) for stem in stems for _ in range(2)]
    return [
        Case("three kinds", (mixed(stems, 4, 1, 6),)),
        Case("two levels", (mixed(deep, 3, 1, 5),)),
        Case("one request", ([fresh.tokens(4, 50)],)),
        Case("some are the beginning of others", (fresh.shuffled([stems[1][:n] for n in range(1, 7)] + [stems[0][:n] for n in range(1, 4)]),)),
    ]


def observe(answer: Any, requests: list[list[int]]) -> list[int]:
    """The order, as a list of numbers."""
    order = answer(requests)
    if not isinstance(order, list | tuple) or not all(isinstance(i, int) for i in order):
        raise Unfit("a list of request numbers was wanted, as in [2, 0, 1]")
    return list(order)


def reused(requests: list[list[int]], order: list[int]) -> int:
    """Tokens that each request has in common with the one served before it."""
    return sum(common(requests[a], requests[b]) for a, b in zip(order, order[1:]))


def each_once(case: Case, seen: list[int]) -> str | None:
    """A permutation."""
    n = len(case.args[0])
    return None if sorted(seen) == list(range(n)) else f"every request is served once: the numbers 0 to {n - 1} were wanted in some order"


def most(case: Case, seen: list[int]) -> str | None:
    """As much as can be reused: in the order of the tokens, neighbors have most in common."""
    requests = case.args[0]
    got, best = reused(requests, seen), reused(requests, sorted(range(len(requests)), key=lambda i: requests[i]))
    if got >= best:
        return None
    by_length = sorted(range(len(requests)), key=lambda i: len(requests[i]))
    if seen == list(range(len(requests))):
        return f"that is the order in which they came: {got} tokens are reused, and {best} can be"
    if seen in (by_length, by_length[::-1]):
        return f"the order of the lengths says nothing of beginnings: {got} tokens are reused, and {best} can be"
    if len({requests[i][0] for i in seen}) == 1 + sum(requests[a][0] != requests[b][0] for a, b in zip(seen, seen[1:])):
        return f"those with the same first token stand together, but among them the order matters too: {got} tokens are reused, and {best} can be"
    return f"{got} tokens are reused in this order, and {best} can be"


EXERCISE = Exercise(
    title="The order that reuses most",
    read="book/05-prefix-caching",
    hint="Think of the radix tree of all requests. In which order do you meet its leaves when you walk through it?",
    checked="every request is served once, and no order of these requests reuses more",
    cases=cases,
    observe=observe,
    rules=(each_once, most),
    optional=True,
)
