"""What speculation is worth: tokens of a round by acceptance, speed-up by cost, the best depth and the best tree.

A round drafts some tokens, verifies all of them in one pass of the target and yields what was kept and one token
more. ``acceptance[j]`` is the share of guesses at depth j + 1 that are kept, of those whose predecessors were.
Costs are measured in plain decode steps: a round costs 1 + c of them.
"""

from __future__ import annotations

from typing import Callable, Iterable, NamedTuple, Sequence

from kvedu.errors import KveduError


def expected_tokens(acceptance: Sequence[float]) -> float:
    """Mean tokens of a round, τ: 1 + a1 + a1 a2 + … for a chain as deep as there are entries; 1 for none.

    With the same a everywhere it is (1 - a^(k+1)) / (1 - a) (Leviathan et al. 2023, 2211.17192, equation 1).
    Raises ``KveduError`` for a share outside 0 … 1.

    >>> expected_tokens([0.5, 0.5, 0.5]), expected_tokens([]), expected_tokens([1.0] * 4)
    (1.875, 1.0, 5.0)
    """
    _shares(acceptance)
    total = reached = 1.0
    for share in acceptance:
        reached *= share
        total += reached
    return total


def round_cost(draft_seconds: float, verify_seconds: float, step_seconds: float) -> float:
    """c: what a round costs beyond a plain step, in plain steps: (draft + verify) / step - 1.

    Raises ``KveduError`` for times that are no times.

    >>> round(round_cost(draft_seconds=4e-3, verify_seconds=11e-3, step_seconds=10e-3), 3)
    0.5
    """
    if not (step_seconds > 0 and verify_seconds > 0 and draft_seconds >= 0):
        raise KveduError(f"seconds are positive (a draft's may be 0); got {draft_seconds}, {verify_seconds}, {step_seconds}")
    return (draft_seconds + verify_seconds) / step_seconds - 1


def speedup(tau: float, cost: float) -> float:
    """How many times as fast as plain decoding: τ / (1 + c). Below 1 it is a slow-down. Raises ``KveduError`` for c ≤ -1.

    >>> speedup(1.875, 0.25), round(speedup(1.2, 0.5), 3)
    (1.5, 0.8)
    """
    if not (cost > -1 and tau > 0):
        raise KveduError(f"a round yields tokens and takes time: τ > 0 and c > -1; got τ = {tau}, c = {cost}")
    return tau / (1 + cost)


def best_depth(acceptance: Sequence[float], cost: Callable[[int], float]) -> tuple[int, float]:
    """(k, speed-up) of the depth that pays most, up to as many as there are shares; (0, 1.0) where none pays.

    ``cost(k)`` is c of a round with k guesses. The smallest of equals.

    >>> best_depth([0.8, 0.8, 0.8, 0.8], lambda k: 0.25 * k)
    (3, 1.686857142857)
    >>> best_depth([0.3, 0.3], lambda k: 0.5 * k)
    (0, 1.0)
    """
    best = (0, 1.0)
    for k in range(1, len(acceptance) + 1):
        gain = speedup(expected_tokens(acceptance[:k]), cost(k))
        if gain > best[1] + 1e-12:
            best = (k, gain)
    return best[0], round(best[1], 12)


def tree_tokens(parents: Sequence[int], by_rank: Sequence[float]) -> float:
    """τ of a tree: 1 and, for each node, the chance that it is kept.

    ``parents`` as in ``TokenTree``: -1 for the text's last token, children in the order in which they were guessed.
    ``by_rank[r]`` is the chance that, of a node's children, the one of rank r is kept; they exclude each other, so they
    add up to at most 1 (Chen et al. 2024, Sequoia, 2402.12374). A child beyond the list is never kept.

    >>> tree_tokens([-1, -1, 0], [0.6, 0.2]), tree_tokens([-1, 0, 1], [0.5])
    (2.16, 1.875)
    """
    _ranks(by_rank)
    children: dict[int, int] = {}
    kept: list[float] = []
    for i, parent in enumerate(parents):
        if not -1 <= parent < i:
            raise KveduError(f"node {i} hangs from {parent}; a parent is an earlier node, or -1")
        rank = children[parent] = children.get(parent, -1) + 1
        share = by_rank[rank] if rank < len(by_rank) else 0.0
        kept.append(share * (kept[parent] if parent >= 0 else 1.0))
    return 1 + sum(kept)


class BestTree(NamedTuple):
    """A tree's parents, level by level, its τ and its speed-up."""

    parents: tuple[int, ...]
    tokens: float
    speedup: float


def best_tree(
    by_rank: Sequence[float], cost: Callable[[int, int], float], *, nodes: int, depth: int
) -> BestTree:
    """The tree of at most ``nodes`` nodes and this depth that pays most; an empty one (speed-up 1) where none does.

    ``cost(n, d)`` is c of a round with n nodes of depth d. For each n and d the tree that holds the n likeliest
    nodes is the best, since a child is never likelier than its parent. Cost: O(depth · nodes² · ranks).

    >>> best_tree([0.6, 0.2], lambda n, d: 0.05 * n + 0.1 * d, nodes=6, depth=3)
    BestTree(parents=(-1, -1, 0, 1, 0), tokens=2.4, speedup=1.655172413793)
    >>> best_tree([0.6, 0.2], lambda n, d: 0.1 * d, nodes=3, depth=1).parents
    (-1, -1)
    """
    _ranks(by_rank)
    best = BestTree((), 1.0, 1.0)
    for deepest in range(1, depth + 1):
        likely: list[tuple[float, int, int]] = []  # chance, parent, depth
        open_: list[tuple[float, int, int, int]] = [(by_rank[0], -1, 0, 1)] if by_rank else []  # chance, parent, rank, depth
        while open_ and len(likely) < nodes:
            open_.sort(key=lambda entry: (-entry[0], entry[3], entry[2]))
            chance, parent, rank, level = open_.pop(0)
            if chance <= 0:
                break
            likely.append((chance, parent, level))
            if rank + 1 < len(by_rank):
                open_.append((chance / by_rank[rank] * by_rank[rank + 1], parent, rank + 1, level))
            if level < deepest:
                open_.append((chance * by_rank[0], len(likely) - 1, 0, level + 1))
            tokens = 1 + sum(entry[0] for entry in likely)
            gain = speedup(tokens, cost(len(likely), max(entry[2] for entry in likely)))
            if gain > best.speedup + 1e-12:
                best = BestTree(_levels(likely), round(tokens, 12), round(gain, 12))
    return best


def _levels(nodes: Sequence[tuple[float, int, int]]) -> tuple[int, ...]:
    """Parents of the nodes, numbered anew level by level."""
    order = sorted(range(len(nodes)), key=lambda i: nodes[i][2])
    place = {-1: -1} | {old: new for new, old in enumerate(order)}
    return tuple(place[nodes[i][1]] for i in order)


def break_even(tau: float, cost: Callable[[int], float], batches: Iterable[int]) -> int | None:
    """The first of these batch sizes at which speculation no longer pays; None where it pays at all of them.

    ``cost(B)`` is c where B texts guess together: the more rows a pass already has, the more the guesses add.

    >>> break_even(2.0, lambda batch: 0.1 * batch, [1, 2, 4, 8, 16])
    16
    """
    return next((batch for batch in batches if speedup(tau, cost(batch)) <= 1), None)


def _shares(acceptance: Sequence[float]) -> None:
    if any(not 0 <= share <= 1 for share in acceptance):
        raise KveduError(f"acceptance is a share between 0 and 1 at each depth; got {list(acceptance)}")


def _ranks(by_rank: Sequence[float]) -> None:
    _shares(by_rank)
    if sum(by_rank) > 1 + 1e-9:
        raise KveduError(f"at most one child of a node is kept, so the shares by rank add up to at most 1; got {list(by_rank)}")
