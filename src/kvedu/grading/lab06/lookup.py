"""Lab 6, exercise 3: guess by looking up what followed before."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Texts that repeat themselves once, twice with different ends, not at all, only at their own end, and with overlaps."""
    a, b, c, d, e, f = (list(x) for x in zip(*[iter(fresh.shuffled(range(10, 34)))] * 4))
    made = [
        ("a passage comes again", a + b + c + a, 4, 3),
        ("twice before, with two different continuations", a + b + a + c + a, 3, 3),
        ("a long match far back, a short one near", a + b + [a[-1]] + c + a, 3, 3),
        ("only the last token stood elsewhere", a + [b[0]] + c + [a[1]], 3, 3),
        ("the match is near the end, fewer than k follow", a + b[:1] + a, 8, 3),
        ("a cycle of one token", [7] * 6, 4, 3),
        ("a cycle of two tokens", [7, 8] * 4, 5, 3),
        ("nothing comes twice", a + b + c, 4, 3),
        ("shorter than the n-gram", a[:2], 4, 3),
        ("a single token", a[:1], 4, 3),
        ("n is at most one", a + b + [a[2]], 2, 1),
        ("k is one", d + e + f + d, 1, 2),
    ]
    return [Case(name, (ids, k, longest)) for name, ids, k, longest in made]


def finder(*, latest: bool = True, longest_first: bool = True, itself: bool = False, again: bool = False, more: int = 0, only: bool = False) -> Any:
    """An answer with one part changed; unchanged it is right."""

    def answer(ids: list[int], k: int, longest: int) -> list[int]:
        sizes = range(1, longest + 1)
        for n in [longest] if only else (reversed(sizes) if longest_first else sizes):
            last = ids[-n:]
            starts = range(len(ids) - n + (1 if itself else 0))
            for start in reversed(starts) if latest else starts:
                if len(last) == n and ids[start : start + n] == last:
                    at = start if again else start + n
                    return ids[at : at + k + more]
        return []

    return answer


EXERCISE = Exercise(
    title="Guess what followed before",
    read="book/06-speculative-decoding",
    hint="For n from `longest` down to 1: go through the places from the end to the front, but begin one before the text's own end. Where `ids[i:i+n]` are the last n tokens, return what follows.",
    checked="long matches before short ones, the latest of several, no match of the end with itself, overlaps, fewer than k left, and nothing to be found",
    cases=cases,
    right=finder(),
    mistakes=(
        Mistake(finder(itself=True), "the text's last tokens are found at the text's own end, and nothing follows there: only *earlier* places count"),
        Mistake(finder(latest=False), "the first place is taken; where there are several the latest counts, since a text resembles what it said last"),
        Mistake(finder(longest_first=False), "short matches are tried first; a longer one is a better reason, so begin with `longest`"),
        Mistake(finder(only=True), "only matches of `longest` tokens count; where there is none, try one token less, down to 1"),
        Mistake(finder(again=True), "the matched tokens themselves are proposed; they stand in the text already. Propose what *follows* them"),
        Mistake(finder(more=1), "one token too many is proposed; k is the most that will be verified"),
    ),
)
