"""Lab 1, exercise 2: pairs of a query and a key that it may see, with a cache."""

from kvedu.analysis import flops
from kvedu.grading.exercise import Exercise, Mistake
from kvedu.grading.lab01._counted import TINY, cases


def pairs(P: int, n: int) -> int:
    """From the library's count of attention's work: 4 D operations for each pair and query head."""
    work = flops.generation_cost(TINY, P, n)["attention"].flops
    return int(work) // (4 * TINY.H * TINY.D * TINY.L)


EXERCISE = Exercise(
    title="Pairs with a cache",
    read="book/01-what-is-the-kv-cache",
    hint="The token at position p sees p + 1 keys, and with a cache each token that is run is run once.",
    checked="equal to the library's count of attention's work, for seven pairs of P and n",
    cases=cases,
    right=pairs,
    mistakes=(
        Mistake(lambda P, n: (P + n - 1) ** 2, "it is the full square; a token does not see later ones"),
        Mistake(lambda P, n: (P + n - 1) * (P + n - 2) // 2, "tokens do not see themselves in it; the token at position p sees p + 1 keys"),
        Mistake(lambda P, n: (P + n) * (P + n + 1) // 2, "it runs one token too many; the last one is sampled, never run"),
        Mistake(lambda P, n: sum(range(P + 1, P + n)), "it forgets the pairs of the prompt itself"),
    ),
)
