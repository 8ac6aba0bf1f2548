"""Results over parts of the keys, merged by their log-sums."""

import math

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel

NO_MAXIMUM = "large log-sums overflow, and small ones vanish: take the largest away before `tl.exp`"


def cases(fresh):
    made = []
    for n, s, d, empties in ((3, 4, 16, ()), (2, 5, 16, ((0, 1), (0, 4))), (3, 3, 32, ((1, 0), (2, 0), (2, 1), (2, 2))), (1, 1, 16, ())):
        parts, logs = fresh.normal(n, s, d), 4 * fresh.normal(n, s)
        for row, part in empties:
            parts[row, part], logs[row, part] = torch.nan, -math.inf
        name = f"{n} rows, {s} parts" + (f", {len(empties)} of them empty" if empties else "")
        made.append(Case(name, (hollow(parts), hollow(logs), 8)))
    for far in (200.0, -200.0):  # beyond what exp can take
        made.append(Case(f"2 rows, 3 parts, log-sums near {far:g}", (hollow(fresh.normal(2, 3, 16)), hollow(2 * fresh.normal(2, 3) + far), 8)))
    return made


def observe(kernel, parts_NSD: Tensor, logs_NS: Tensor, block: int):
    (N, S, D), out_ND = parts_NSD.shape, empty(len(parts_NSD), parts_NSD.shape[2])
    args = dict(parts=parts_NSD, logs=logs_NS, out=out_ND, parts_n=parts_NSD.stride(0), parts_s=parts_NSD.stride(1), logs_n=logs_NS.stride(0), out_n=out_ND.stride(0), S=S)
    return run_kernel(kernel, (N,), args, ("out",), dict(D=D, BLOCK=block))


def weights(logs: Tensor, base: float = math.e) -> Tensor:
    """Weights that sum to one; zeros where no part has seen anything."""
    top = logs.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    w = base ** (logs - top)
    return w / w.sum(-1, keepdim=True).clamp(min=1e-30)


def used(parts: Tensor, logs: Tensor) -> Tensor:
    return parts.where(logs[..., None] > -math.inf, 0)


def right(parts, logs, out, **_):
    out.copy_((used(parts, logs) * weights(logs)[..., None]).sum(1))


def mean(parts, logs, out, **_):
    out.copy_(used(parts, logs).mean(1))


def base_two(parts, logs, out, **_):
    out.copy_((used(parts, logs) * weights(logs, 2.0)[..., None]).sum(1))


def poisoned(parts, logs, out, **_):
    out.copy_((parts * weights(logs)[..., None]).sum(1))


def no_maximum(guard: bool) -> Twin:
    """exp of the log-sums as they are; with a guard against a sum of 0, or without."""

    def fill(parts, logs, out, **_):
        w = logs.exp()
        total = w.sum(-1, keepdim=True)
        out.copy_((used(parts, logs) * w[..., None]).sum(1) / (total.where(total > 0, 1.0) if guard else total))

    return Twin(fill)


def unguarded(parts, logs, out, **_):
    out.copy_((used(parts, logs) * torch.softmax(logs, -1)[..., None]).sum(1))


EXERCISE = Exercise(
    title="Parts, merged",
    read="book/17-flashattention",
    hint="Weights are exp(log - top), over their sum. Load only the parts whose weight is above 0.",
    checked="1 to 5 parts of 16 and 32 numbers with gaps between them; empty parts whose memory holds NaN; a row whose parts are all empty; log-sums near 200 and −200",
    cases=cases,
    observe=observe,
    compared=left,
    right=Twin(right),
    mistakes=(
        Mistake(Twin(mean), "every part weighs the same: the log-sums say how much each one counts"),
        Mistake(Twin(base_two), "these log-sums are natural logarithms: weigh with exp, not with powers of two"),
        Mistake(Twin(poisoned), "an empty part is multiplied by 0, and 0 × NaN is NaN: do not load it", hint="Use the weights in the mask of the load: mask=(w > 0)[:, None] & …"),
        Mistake(no_maximum(guard=True), NO_MAXIMUM),
        Mistake(no_maximum(guard=False), NO_MAXIMUM),
        Mistake(Twin(unguarded), "a row whose parts are all empty comes out as NaN; it is to be 0", hint="Two guards: no maximum of -inf is subtracted, no sum of 0 is divided by."),
    ),
)  # fmt: skip
