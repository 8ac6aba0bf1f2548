"""The first kernel: a x + y, any length, with a grid."""

from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel


def cases(fresh):
    sizes = ((5, 8), (64, 16), (37, 16), (1, 16), (fresh.integer(65, 79), 16))
    return [Case(f"{n} numbers, blocks of {block}", (hollow(fresh.normal(n)), hollow(fresh.normal(n)), 1.5 + fresh.integer(1, 5), block)) for n, block in sizes]


def observe(kernel, x_N: Tensor, y_N: Tensor, a: float, block: int):
    args = dict(x=x_N, y=y_N, out=empty(len(x_N)), a=a, n=len(x_N))
    return run_kernel(kernel, (-(-len(x_N) // block),), args, ("out",), dict(BLOCK=block))


def right(x, y, out, a, **_):
    out.copy_(a * x + y)


def first_block(x, y, out, a, BLOCK, **_):
    out[:BLOCK] = a * x[:BLOCK] + y[:BLOCK]


def scaled_sum(x, y, out, a, **_):
    out.copy_(a * (x + y))


def own_block(case: Case, seen) -> "str | None":
    """Every number of x and y once, by the program that it belongs to."""
    most = 2 * case.args[0].nbytes
    if seen["asked"] is None or seen["asked"] <= most:
        return None
    return f"the result is right, but {seen['asked']:,} bytes are asked for and {most:,} are enough: does every program work on all numbers? Program p has block p"


EXERCISE = Exercise(
    title="A first kernel",
    read="book/16-roofline",
    hint="Program p owns the elements p * BLOCK to p * BLOCK + BLOCK - 1, as far as there are any.",
    checked="1 to 79 numbers in blocks of 8 and 16, and nothing touched behind the end; each number read once",
    cases=cases,
    observe=observe,
    compared=left,
    right=Twin(right),
    mistakes=(
        Mistake(Twin(first_block), "every program works on the first block: nothing in the kernel depends on tl.program_id(0)"),
        Mistake(Twin(scaled_sum), "y is multiplied by a as well"),
    ),
    rules=(own_block,),
)  # fmt: skip
