"""Lab 1, exercise 2: rows that are projected when every step runs only what is new."""

from kvedu.grading.exercise import Exercise, Mistake
from kvedu.grading.lab01._counted import cases, rows_counted

EXERCISE = Exercise(
    title="Rows projected with a cache",
    read="book/01-what-is-the-kv-cache",
    hint="With a cache each token that is run is run once. Which token is never run?",
    checked="equal to the rows counted in real generations with a cache, for seven pairs of P and n",
    cases=cases,
    right=lambda P, n: rows_counted(P, n, cached=True),
    mistakes=(
        Mistake(lambda P, n: P + n, "it is one too many; the last token is sampled, never run"),
        Mistake(lambda P, n: n, "it forgets the prompt; it goes through once, in the first step"),
        Mistake(lambda P, n: n - 1, "it forgets the prompt; what is left is the decode steps alone"),
        Mistake(lambda P, n: n * P + n * (n - 1) // 2, "it is the count without a cache"),
    ),
)
