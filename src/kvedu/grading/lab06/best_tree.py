"""Lab 6, challenge: the tree of so many nodes from which most tokens are expected."""

from __future__ import annotations

import heapq
from typing import Any

from kvedu.grading.exercise import Case, Exercise, Unfit, call
from kvedu.grading.fresh import Fresh

Path = tuple[int, ...]


def cases(fresh: Fresh) -> list[Case]:
    """A sure draft, an unsure one, one that grows unsure with depth; few nodes and many; random shares."""

    def at_random(depth: int, ranks: int) -> list[list[float]]:
        table = []
        for _ in range(depth):
            left, row = 1.0, []
            for _ in range(ranks):
                row.append(round(left * (0.2 + 0.05 * fresh.integer(0, 9)), 4))
                left -= row[-1]
            table.append(sorted(row, reverse=True))
        return table

    sure, unsure = [[0.9, 0.05, 0.02]] * 6, [[0.4, 0.35, 0.2]] * 6
    fading = [[0.8, 0.1, 0.05], [0.6, 0.2, 0.1], [0.4, 0.3, 0.1], [0.2, 0.2, 0.2]]
    named = [("a sure draft", sure, 6), ("an unsure draft", unsure, 6), ("one that fades", fading, 8), ("one node", fading, 1)]
    named += [("at random", at_random(4, 3), fresh.integer(5, 12)) for _ in range(3)]
    return [Case(f"{name}, {nodes} nodes", (shares, nodes)) for name, shares, nodes in named]


def observe(answer: Any, shares: list[list[float]], nodes: int) -> list[Path]:
    """The paths, as tuples of ranks."""
    paths = call(answer, shares, nodes)
    if not isinstance(paths, list | tuple | set) or not all(isinstance(p, tuple) and p and all(type(r) is int for r in p) for p in paths):
        raise Unfit("a list of paths was wanted, each a tuple of ranks: [(0,), (0, 0), (1,)]")
    return sorted(paths)


def worth(shares: list[list[float]], path: Path) -> float:
    """Probability that all guesses of a path are right."""
    product = 1.0
    for depth, rank in enumerate(path):
        product *= shares[depth][rank]
    return product


def best(shares: list[list[float]], nodes: int) -> list[Path]:
    """Always the most likely node whose parent is there."""
    heap = [(-worth(shares, (rank,)), (rank,)) for rank in range(len(shares[0]))]
    heapq.heapify(heap)
    chosen: list[Path] = []
    while heap and len(chosen) < nodes:
        _, path = heapq.heappop(heap)
        chosen.append(path)
        if len(path) < len(shares):
            for rank in range(len(shares[len(path)])):
                heapq.heappush(heap, (-worth(shares, (*path, rank)), (*path, rank)))
    return chosen


def is_tree(case: Case, seen: list[Path]) -> str | None:
    """Within the budget, each once, each with its parent, none deeper or wider than the table."""
    shares, nodes = case.args
    if len(set(seen)) < len(seen):
        return "a path occurs twice"
    if len(seen) > nodes:
        return f"{len(seen)} nodes came, and {nodes} are allowed"
    if any(len(p) > len(shares) or any(not 0 <= r < len(shares[d]) for d, r in enumerate(p)) for p in seen):
        return f"a path is deeper than {len(shares)} or has a rank that the table does not know"
    orphan = next((p for p in seen if len(p) > 1 and p[:-1] not in seen), None)
    return f"the path {orphan} has no parent: {orphan[:-1]} is not in the tree" if orphan else None


def is_best(case: Case, seen: list[Path]) -> str | None:
    """As many expected tokens as can be."""
    shares, nodes = case.args
    got, most = (sum(worth(shares, p) for p in paths) for paths in (seen, best(shares, nodes)))
    if got > most - 1e-9:
        return None
    told = f"{1 + got:.3f} tokens a round are expected of this tree, and {1 + most:.3f} can be"
    if all(r == 0 for p in seen for r in p):
        return f"a chain: {told}. Where the first guess is unsure, a second one beside it is worth more than a fifth below it"
    if max(len(p) for p in seen) == 1:
        return f"guesses for the first place only: {told}. Below a likely guess there is more to win"
    if len(seen) < len(best(shares, nodes)):
        return f"nodes are left over: {told}"
    return f"{told}. Compare the probabilities of whole paths, not of single guesses"


EXERCISE = Exercise(
    title="The best tree",
    read="book/06-speculative-decoding",
    hint="A node adds the probability that its whole path is right. That is never more than its parent's. So what do you get by always adding the most likely node that is not there yet?",
    checked="the tree is within its budget, whole, and no tree of so many nodes has more expected tokens",
    cases=cases,
    observe=observe,
    rules=(is_tree, is_best),
    optional=True,
)
