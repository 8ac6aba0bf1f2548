"""Lab 19, exercise 1: the bytes of a page of codes."""

from __future__ import annotations

from kvedu.analysis.quantized import Quantized
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def right(C: int, K: int, D: int, bits: int, group: int, symmetric: bool) -> int:
    """The library's own count: codes packed into bytes, scales and zero points of 16 bits."""
    return Quantized(bits, group, 2, 0 if symmetric else 2).bytes_of(C, K, D)


def cases(fresh: Fresh) -> list[Case]:
    """8, 4 and 2 bits; one group a head and several; with and without zero points."""
    drawn = fresh.choice((8, 16, 32)), fresh.integer(1, 8), 128, fresh.choice((2, 4)), fresh.choice((32, 64)), False
    return [
        Case("16 tokens, 3 heads of 64, int8 with one scale a head", (16, 3, 64, 8, 64, True)),
        Case("the same with zero points", (16, 3, 64, 8, 64, False)),
        Case("one token, int4 in groups of 32, zero points", (1, 8, 128, 4, 32, False)),
        Case("drawn", drawn),
    ]


EXERCISE = Exercise(
    title="Bytes of a page",
    read="book/19-quantized-pages",
    hint="Codes first: how many bytes are D codes of so many bits? Then groups: how many has a head, and what does each store?",
    checked="four pages: 8, 4 and 2 bits, one group a head and several, with and without zero points",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda C, K, D, bits, group, symmetric: C * K * D * bits // 8, "scales are stored, too: one of 2 bytes for each group of each token and head"),
        Mistake(lambda C, K, D, bits, group, symmetric: right(C, K, D, bits, group, True), "an asymmetric group has a zero point beside its scale"),
        Mistake(lambda C, K, D, bits, group, symmetric: right(C, K, D, 8, group, symmetric), "codes of fewer than 8 bits share a byte"),
        Mistake(lambda C, K, D, bits, group, symmetric: right(C, K, D, bits, D, symmetric), "a head has D / group groups, and each has its own scale"),
        Mistake(lambda C, K, D, bits, group, symmetric: right(C, 1, D, bits, group, symmetric), "a token has K heads"),
    ),
)  # fmt: skip
