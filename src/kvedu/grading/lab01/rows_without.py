"""Lab 1, exercise 2: rows that are projected when every step runs the whole text again."""

from kvedu.grading.exercise import Exercise, Mistake
from kvedu.grading.lab01._counted import cases, rows_counted

EXERCISE = Exercise(
    title="Rows projected without a cache",
    read="book/01-what-is-the-kv-cache",
    hint="Write down the steps for P = 3 and n = 4. What does each step run? The fourth gives the fourth token, and is the last.",
    checked="equal to the rows counted in real generations without a cache, for seven pairs of P and n",
    cases=cases,
    right=lambda P, n: rows_counted(P, n, cached=False),
    mistakes=(
        Mistake(lambda P, n: sum(P + i for i in range(n + 1)), "it counts a step too many; the last token is sampled, never run"),
        Mistake(lambda P, n: n * (P + n), "it is n steps of full length; early steps are shorter"),
        Mistake(lambda P, n: n * P, "it runs the prompt in every step, and never the tokens that have been added"),
        Mistake(lambda P, n: P + n - 1, "it is the count with a cache; without one every step runs all tokens again"),
    ),
)
