"""Lab 8, exercise 4: how many sequences must and may run, by Little's law and by the limit on TPOT."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.serving import Server, server
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

ROUND = Server(weights=0.0625, compute=2**-7, cache=2**-7, steps=16)
"""Exact in binary: step(B) is (8 + B) / 128 s up to B = 8, then 2 B / 128 s; saturation 4 requests/s."""


def cases(fresh: Fresh) -> list[Case]:
    """A made-up server at its edges, and real ones away from them."""
    found = [
        Case("a limit that 12 sequences meet exactly", (ROUND, 2.5, 12 / 64)),
        Case("a mean of exactly 4 running", (replace(ROUND, cache=0.0), 4.0, 0.25)),
        Case("hardly any load", (ROUND, 0.001, 0.25)),
        Case("no load at all", (ROUND, 0.0, 0.25)),
        Case("a rate beyond saturation", (ROUND, 4.5, 0.25)),
        Case("more must run than may", (ROUND, 3.5, 0.078125)),
        Case("a limit that one alone misses", (ROUND, 1.0, 0.0625)),
    ]
    llama = known_model("Llama-3-8B").config
    for name in ("A100-80GB-SXM", "H200-SXM"):
        chip = server(llama, hardware(name), fresh.integer(300, 700), fresh.integer(100, 200))
        share, limit = fresh.integer(30, 80) / 100, fresh.integer(15, 40) / 1000
        found.append(Case(f"Llama-3-8B on {name} at {share:.0%} of saturation", (chip, share * chip.saturation, limit)))
    return found


def between(
    fewest: Callable[[float], int] = lambda mean: max(1, math.ceil(mean)),
    more: int = 0,
    *,
    strict: bool = False,
    none: bool = True,
):
    """An answer with its rounding, its upper end or its empty case changed."""

    def answer(server: Server, rate: float, tpot_limit: float) -> tuple[int, int] | None:
        mean, most = server.running_at(rate), 0
        while server.step(most + 1) < tpot_limit or (not strict and server.step(most + 1) == tpot_limit):
            most += 1
        if most < 1 or (mean > most and none) or math.isinf(mean):
            return None
        return fewest(mean), most + more

    return answer


EXERCISE = Exercise(
    title="How many must run, how many may",
    read="book/08-latency-and-throughput",
    hint="Round the mean up, and at least to 1. Go up from one sequence while the step meets the limit. Then compare the two.",
    checked="limits met exactly, a whole mean, no load, too much load, fewest above most, and two real GPUs",
    cases=cases,
    right=between(),
    parts=("fewest", "most"),
    mistakes=(
        Mistake(between(lambda mean: max(1, int(mean))), "the fewest is rounded down; with fewer slots than run on average the line grows"),
        Mistake(between(math.ceil), "without load 0 must run; a server that lets nobody in serves nobody: at least 1"),
        Mistake(between(lambda mean: int(mean) + 1), "a mean that is a whole number already is rounded up by one more"),
        Mistake(between(more=1), "the most is one too many: it is the first that misses the limit"),
        Mistake(between(strict=True), "a step that takes exactly the limit is counted as a miss"),
        Mistake(between(none=False), "more must run than may, and it still gives a pair; there is no such number: None"),
    ),
)
