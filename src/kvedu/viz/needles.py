"""Data of the needle grid: where in a text a fact can stand and still be found, by cache and budget.

A cell is the share of needles found at one length and depth. Two ways of asking: the question comes after the
context, when tokens are gone already, or in one step with its end, so that a policy can see what is asked.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from kvedu.compress.evaluate.feed import MakeCache
from kvedu.compress.evaluate.needles import needle_quizzes
from kvedu.compress.evaluate.quiz import accuracy, answer
from kvedu.errors import KveduError
from kvedu.model.transformer import Transformer

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


def grid(
    model: Transformer, make: Mapping[int, MakeCache], depths: Sequence[float] = DEPTHS, n: int = 2, *, aware: bool = False, seed: int = 0
) -> list[list[float]]:
    """Share found, a row for each length of ``make`` (length → the cache for contexts of that length), a column for each depth."""
    if model.tokenizer is None:
        raise KveduError("needles are made of text, and this model has no tokenizer; set model.tokenizer")
    rows = []
    for length, one in make.items():
        quizzes = needle_quizzes(model.tokenizer.encode, (length,), depths, n, seed=seed)
        rows.append([accuracy(answer(model, [q for q in quizzes if q.depth == depth], one, aware=aware)) for depth in depths])
    return rows


def data(methods: Sequence[dict[str, Any]], lengths: Sequence[int], n: int, depths: Sequence[float] = DEPTHS, **start: Any) -> dict[str, Any]:
    """The figure's data. A method: {"name", "grids": {budget in % as text: {"blind": grid, "aware": grid}}}; the first is the full cache.

    Raises ``KveduError`` for a grid of another size.
    """
    for method in methods:
        for kinds in method["grids"].values():
            for name, rows in kinds.items():
                if len(rows) != len(lengths) or any(len(row) != len(depths) for row in rows):
                    raise KveduError(f"{method['name']}, {name}: {len(lengths)} rows of {len(depths)} cells were wanted")
    budgets = sorted({int(budget) for method in methods for budget in method["grids"]}, reverse=True)
    return {
        "figure": "needles",
        "title": "What is still found",
        "methods": list(methods),
        "lengths": list(lengths),
        "depths": list(depths),
        "budgets": [budget for budget in budgets if budget < 100],
        "n": n,
        "start": {"method": methods[1]["name"]} | start,
        "predict": {
            "question": "A cache may keep a quarter of a text and does not know what will be asked. In which part of the text is a fact found best?",
            "choices": ["At the beginning", "In the middle", "At the end", "It depends on the policy alone"],
            "answer": 2,
            "because": "A policy that keeps the newest half or quarter has what stands there. Key norm and random keep a handful of the newest and find nothing; what a score thinks of a code number that nobody has asked for yet is little.",
        },
    }
