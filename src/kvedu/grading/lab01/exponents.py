"""Lab 1, exercise 2: how each count grows with the number of new tokens."""

from kvedu.grading.exercise import Case, Exercise, Mistake

RIGHT = {"rows without": 2, "rows with": 1, "pairs without": 3, "pairs with": 2}


def said(**changes: int):
    """An answer with some exponents changed."""
    return lambda: RIGHT | {name.replace("_", " "): value for name, value in changes.items()}


EXERCISE = Exercise(
    title="How each grows",
    read="book/01-what-is-the-kv-cache",
    hint="Double n and see by what each formula grows: twofold is exponent 1, fourfold 2, eightfold 3.",
    checked="all four exponents",
    cases=lambda fresh: [Case("exponents()")],
    right=said(),
    mistakes=(
        Mistake(said(pairs_with=1), "attention is called linear with a cache; each token still meets every earlier key, so pairs grow like n squared"),
        Mistake(said(pairs_without=2), "one step's pairs are n squared, and without a cache there are n steps"),
        Mistake(said(rows_without=1), "rows without a cache are called linear; every one of the n steps runs up to P + n rows"),
        Mistake(said(rows_with=2), "rows with a cache are called quadratic; after the prompt every step runs a single row"),
        Mistake(said(rows_with=0), "a step's rows do not grow with a cache, but the sum over n steps does"),
    ),
)
