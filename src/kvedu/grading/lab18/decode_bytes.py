"""Lab 18, exercise 1: the bytes that a decode step must move."""

from __future__ import annotations

from collections.abc import Callable

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.kernels.attention import cost


def right(lengths: list[int], H: int, K: int, D: int, size: int) -> int:
    """The library's own count, a sequence at a time: its last token is the new one."""
    return sum(int(cost(1, S - 1, H, K, D, size).bytes) for S in lengths)


def counted(kv: float, q: float, shared: bool = False) -> Callable[..., int]:
    """A count with so many times the keys and values, and so many tensors of the queries' size."""
    return lambda lengths, H, K, D, size: int((kv * sum(lengths) * (H if shared else K) * D + q * len(lengths) * H * D) * size)


def cases(fresh: Fresh) -> list[Case]:
    """One and several sequences, groups of 1, 3 and 4, 2 and 4 bytes."""
    H, K = fresh.choice(((12, 4), (32, 8), (28, 4)))
    return [
        Case("one sequence of 100 tokens, 9 query heads on 3 KV heads of 64", ([100], 9, 3, 64, 2)),
        Case("three sequences of unequal length", ([1, 17, 300], 9, 3, 64, 4)),
        Case("a KV head for each query head", ([40, 41], 8, 8, 16, 2)),
        Case("drawn", ([fresh.integer(1, 999) for _ in range(4)], H, K, fresh.choice((64, 128)), fresh.choice((2, 4)))),
    ]


EXERCISE = Exercise(
    title="The bytes of a decode step",
    read="book/18-paged-decode-kernel",
    hint="Four tensors: keys and values of all tokens with K heads each, queries and results of one token with H heads.",
    checked="four steps: one and several sequences, groups of 1 to 7, numbers of 2 and 4 bytes",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(counted(2, 2, shared=True), "keys and values are counted once for each query head; the query heads of a group share them"),
        Mistake(counted(1, 2), "there are keys and values: two numbers for each place"),
        Mistake(counted(2, 0), "the queries are read and the results are written, too"),
        Mistake(counted(2, 1), "the queries are read and results of the same size are written: one of the two is missing"),
        Mistake(lambda lengths, H, K, D, size: right(lengths, H, K, D, 1), "numbers are counted, not bytes: multiply by `size`"),
    ),
)
