"""Slots and output lengths: what a batch wastes that lasts as long as its longest, before any model is run.

A sequence of n output tokens takes n steps, since the step that ends its prompt yields the first one; prompts are
computed whole, in one step. Lengths are the sequences' own, in tokens.
"""

from __future__ import annotations

from typing import Sequence

from kvedu.errors import KveduError


def mean_longest(lengths: Sequence[int], batch: int) -> float:
    """Expected maximum of ``batch`` lengths drawn independently from these, all of them alike. Exact.

    The chance that all draws lie among the i smallest of n is (i/n)^batch. Raises ``KveduError`` for no
    lengths, one below 1, or an empty batch. Cost: one sort.

    >>> mean_longest([4, 2, 10, 3], 1), round(mean_longest([4, 2, 10, 3], 4), 2)
    (4.75, 8.04)
    """
    _check(lengths, batch)
    n = len(lengths)
    return sum(x * ((i / n) ** batch - ((i - 1) / n) ** batch) for i, x in enumerate(sorted(lengths), 1))


def static_over_continuous(lengths: Sequence[int], batch: int) -> float:
    """How many times as many steps static batching takes for an endless line: mean longest over mean.

    A static batch takes mean_longest steps for batch x mean tokens; a slot that is refilled at once
    takes one step for each token.

    >>> static_over_continuous([5, 5, 5], 64), round(static_over_continuous(range(1, 1000), 64), 2)
    (1.0, 1.97)
    """
    return mean_longest(lengths, batch) * len(lengths) / sum(lengths)


def static_utilization(lengths: Sequence[int], batch: int) -> float:
    """Share of a static batch's slots that yield a token, over an endless line: 1 / ``static_over_continuous``."""
    return 1 / static_over_continuous(lengths, batch)


def static_steps(lengths: Sequence[int], batch: int) -> int:
    """Steps of static batching for this line, in its order: each batch lasts as long as its longest. Errors as above.

    >>> static_steps([4, 2, 10, 3, 6, 1, 5], 4)
    16
    """
    _check(lengths, batch)
    return sum(max(lengths[i : i + batch]) for i in range(0, len(lengths), batch))


def continuous_steps_between(lengths: Sequence[int], batch: int) -> tuple[int, int]:
    """Fewest and most steps that continuous batching can take for this line, in whatever order (Graham 1969).

    At least total / batch steps, and at least the longest. At most total / batch + (1 - 1/batch) x longest:
    until the one that ends last has started, no slot is empty. Errors as above.

    >>> continuous_steps_between([4, 2, 10, 3, 6, 1, 5], 4)
    (10, 15)
    """
    _check(lengths, batch)
    total, longest = sum(lengths), max(lengths)
    return max(-(-total // batch), longest), (total + (batch - 1) * longest) // batch


def _check(lengths: Sequence[int], batch: int) -> None:
    if not len(lengths) or min(lengths) < 1 or batch < 1:
        raise KveduError(
            f"a line of sequences has at least one, each of 1 token or more, and a batch at least one slot; got "
            f"{len(lengths)} lengths, the smallest {min(lengths, default=None)}, and batch={batch}"
        )
