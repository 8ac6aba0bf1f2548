"""FLOPs per byte of the cache, for prefill, chunks and decode."""

from kvedu.grading.exercise import Case, Exercise, Mistake


def cases(fresh):
    shapes = [(1, 4095, 32, 8, 128, 2), (64, 0, 9, 3, 64, 2), (16, 100, 32, 32, 128, 1), (1, fresh.integer(10, 5000), 64, 8, 128, 4), (fresh.integer(2, 50), 7, 6, 2, 32, 2)]
    return [Case(f"T={T}, S={S}, H={H}, K={K}, D={D}, {size} bytes a number", (T, S, H, K, D, size)) for T, S, H, K, D, size in shapes]


def pairs(T, S):
    return T * S + T * (T + 1) / 2


def right(T, S, H, K, D, size):
    return 4 * D * H * pairs(T, S) / (2 * (S + T) * K * D * size)


EXERCISE = Exercise(
    title="FLOPs per byte",
    read="book/16-roofline",
    hint="Count the pairs (query, key it sees) first. A pair of one head costs 2 D FLOPs for its score and 2 D for its share of the values.",
    checked="decode, a prompt from scratch and chunks after a prefix; groups of 1 to 8; 1, 2 and 4 bytes a number",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda T, S, H, K, D, size: right(T, S, H, H, D, size), "keys and values are counted per query head; a group shares them"),
        Mistake(lambda T, S, H, K, D, size: right(T, S, H, K, D, size) * 2, "only keys are counted, or only values: attention reads both"),
        Mistake(lambda T, S, H, K, D, size: right(T, S, H, K, D, size) / 2, "a multiplication and an addition are two FLOPs, and there are two products"),
        Mistake(lambda T, S, H, K, D, size: right(T, S, H, K, D, size) * T * (S + T) / pairs(T, S), "the full rectangle of queries and keys is counted; a query sees itself and what came before"),
        Mistake(lambda T, S, H, K, D, size: right(T, S, H, K, D, 2), "the bytes of a number are taken to be 2"),
    ),
    tolerance=1e-6,
)  # fmt: skip
