"""Lab 15, exercise 5: what a query head brings from a token, as one matrix."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Heads at the front, in the middle and at the end, of MHA, GQA and MQA, with M = H D as in SmolLM2."""
    made = []
    for H, K, D in ((9, 3, 4), (4, 2, 5), (6, 1, 3), (3, 3, 4)):
        w_v, w_o = fresh.normal(K * D, H * D), fresh.normal(H * D, H * D)
        for head in (1, H - 1, fresh.integer(0, H - 1)):
            made.append(Case(f"H={H}, K={K}, D={D}, head {head}", (w_v, w_o, head, H, K)))
    return made


def product(kv_head: Callable[[int, int, int], int], *, rows: bool = False, flip: bool = False) -> object:
    """An answer with another KV head, rows of the output matrix instead of columns, or transposed."""

    def answer(w_v: Tensor, w_o: Tensor, head: int, H: int, K: int) -> Tensor:
        D, k = len(w_v) // K, kv_head(head, H, K)
        o = w_o[head * D : (head + 1) * D] if rows else w_o[:, head * D : (head + 1) * D].T
        ov = w_v[k * D : (k + 1) * D].T @ o
        return ov.T if flip else ov

    return answer


def group(head: int, H: int, K: int) -> int:
    """The KV head that a query head reads."""
    return head // (H // K)


EXERCISE = Exercise(
    title="What a head brings",
    read="book/15-sinks-rope-qk-ov",
    hint="A value is `w_v_rows @ x`, D numbers, and the head's own D columns of w_o bring it back to M. Which KV head does this query head read? With x as a row, x W_V^T W_O^T.",
    checked="the matrix of heads at the front and at the end of MHA, GQA and MQA, for a row x: x @ OV",
    cases=cases,
    right=product(group),
    mistakes=(
        Mistake(product(lambda head, H, K: head % K), "the KV heads are dealt out in turn (0, 1, 2, 0, 1, 2 …); neighbors share one: head // G with G = H // K"),
        Mistake(product(lambda head, H, K: min(head // K, K - 1)), "the query head is divided by the number of KV heads; the size of a group is G = H // K"),
        Mistake(product(group, rows=True), "rows of w_o are taken; it is [M, H D], so a head owns D of its *columns*"),
        Mistake(product(group, flip=True), "the matrix is transposed: it takes columns. x is a row here, x @ OV"),
        Mistake(product(lambda head, H, K: 0), "every head is given KV head 0"),
    ),
)  # fmt: skip
