"""Trees for lab 6, as lists of parents."""

from __future__ import annotations

from kvedu.grading.exercise import Case
from kvedu.grading.fresh import Fresh


def trees(fresh: Fresh) -> list[tuple[str, list[int]]]:
    """A chain, siblings, two branches, nodes level by level and branch by branch, random ones, no node at all."""
    random = [fresh.integer(-1, i - 1) for i in range(fresh.integer(7, 10))]
    return [
        ("a chain", [-1, 0, 1, 2]),
        ("three siblings", [-1, -1, -1]),
        ("two branches, one after the other", [-1, 0, 1, -1, 3]),
        ("two branches, level by level", [-1, -1, 0, 1, 2, 3]),
        ("a tree of widths 2, 2, 1", [-1, -1, 0, 0, 1, 1, 2, 3, 4, 5]),
        ("a tree at random", random),
        ("one node", [-1]),
        ("no node", []),
    ]


def cases(fresh: Fresh) -> list[Case]:
    """Each tree alone."""
    return [Case(name, (parents,)) for name, parents in trees(fresh)]
