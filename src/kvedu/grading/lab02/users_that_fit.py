"""Lab 2, exercise 3: how many conversations a GPU can hold."""

from __future__ import annotations

from collections.abc import Callable

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.weights import weight_bytes
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Round numbers at the edge, and real GPUs and conversations away from it."""
    llama = known_model("Llama-3-8B").config
    weights, token = weight_bytes(llama), kv_cache_bytes(llama, 1)
    edges = [
        Case("1,000 bytes, weights 400, 100 bytes a user, no reserve", (1000, 400, 10, 10, 0)),
        Case("999 bytes, weights 400, 100 bytes a user, no reserve", (999, 400, 10, 10, 0)),
        Case("1,000 bytes, a quarter in reserve, weights 400, 100 bytes a user", (1000, 400, 10, 10, 0.25)),
        Case("weights that do not fit", (1000, 1301, 10, 10, 0)),
        Case("nothing but weights", (1000, 1000, 10, 10, 0)),
    ]
    for name in ("L4", "A100-80GB-SXM", "H200-SXM"):
        tokens = fresh.integer(3_000, 40_000)
        reserve = fresh.choice((0.05, 0.15, 0.2))
        edges.append(Case(f"Llama-3-8B on {name}, {tokens:,} tokens each, reserve {reserve}", (hardware(name).memory, weights, token, tokens, reserve)))
        edges.append(Case(f"Llama-3-8B on {name}, {tokens:,} tokens each, reserve as it is by default", (hardware(name).memory, weights, token, tokens)))
    return edges


def users(budget: Callable[[float, float, float], float], *, least: int = 0, rounding: Callable[[float], int] = lambda x: int(x // 1)):
    """An answer with its budget (of GPU, weights, reserve), its floor or its rounding changed."""

    def answer(gpu_bytes: int, weights: int, token_bytes: int, tokens: int, reserve: float = 0.1) -> int:
        return max(least, rounding(budget(gpu_bytes, weights, reserve) / (token_bytes * tokens)))

    return answer


def left(gpu: float, weights: float, reserve: float) -> float:
    """What is left when reserve and weights are gone."""
    return gpu * (1 - reserve) - weights


EXERCISE = Exercise(
    title="How many users fit",
    read="book/02-memory-math",
    hint="Budget first: what is left when the reserve and the weights are gone? Then whole users, and never fewer than nobody.",
    checked="exact fits, one byte less, reserves, weights that do not fit, and three real GPUs",
    cases=cases,
    right=users(left),
    mistakes=(
        Mistake(users(left, rounding=round), "users are rounded to the nearest; a user who does not fit whole does not fit: round down"),
        Mistake(users(left, rounding=lambda x: -int(-x // 1)), "users are rounded up; a user who does not fit whole does not fit"),
        Mistake(users(left, least=-(10**9)), "fewer than nobody are served where the weights do not fit; the least is 0"),
        Mistake(users(lambda g, w, r: g - w), "the reserve is forgotten"),
        Mistake(users(lambda g, w, r: (g - w) * (1 - r)), "the reserve is a share of what the weights leave; it is one of the whole GPU"),
        Mistake(users(lambda g, w, r: g * (1 - r)), "the weights are forgotten; they stand in the same memory"),
        Mistake(users(lambda g, w, r: g * r - w), "the reserve is what is used, not what stays free"),
    ),
)
