"""Gumbel draw: each program finds the best of a stretch of one row's vocabulary, then one program a row the best of those."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.draw import COLDEST
from kvedu.kernels.launch import KernelError, Launch, check_rows, check_whole, power_of_two


@triton.jit
def best_of_stretch(logits, temperature, seeds, least, values, ids, logits_n, V, stretches,
                    BLOCK: tl.constexpr, FLOOR: tl.constexpr, COLDEST: tl.constexpr):  # fmt: skip
    """The largest noisy logit of a stretch and its id; of equals the first. Lanes past the end never win.

    NaN where a logit is NaN or plus infinity: the row is broken.
    """
    n = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    i = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + n * logits_n + i, mask=i < V, other=float("-inf")).to(tl.float32)
    heat = tl.load(temperature + n)
    score = x
    if heat > 0:
        u = tl.minimum(tl.rand(tl.load(seeds + n), i), 1 - 0.5**24)
        score = x / tl.maximum(heat, COLDEST) - tl.log(-tl.log(u))
    if FLOOR:
        score = tl.where(x < tl.load(least + n), float("-inf"), score)
    score = tl.where(i < V, score, float("-inf"))
    top = tl.max(score, 0)
    broken = tl.sum(((x != x) | (x == float("inf"))).to(tl.int32), 0)
    tl.store(values + n * stretches + part, tl.where(broken > 0, float("nan"), top))
    tl.store(ids + n * stretches + part, tl.min(tl.where((score == top) & (i < V), i, 2147483647), 0).to(tl.int64))


@triton.jit
def best_of_row(values, ids, out, stretches, PARTS: tl.constexpr):
    """The best of the stretches; of equals the first. -1 where one is broken or nothing finite is left."""
    n = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    value = tl.load(values + n * stretches + part, mask=part < stretches, other=float("-inf"))
    top = tl.max(value, 0)
    where = (value == top) & (part < stretches)
    best = tl.load(ids + n * stretches + part, mask=where, other=9223372036854775807)
    broken = tl.sum((value != value).to(tl.int32), 0)
    tl.store(out + n, tl.where((broken > 0) | (top == float("-inf")), -1, tl.min(best, 0)))


def plan_draw(
    logits_NV: Tensor, temperature_N: Tensor, seeds_N: Tensor, least_N: Tensor | None, ids_N: Tensor, block: int | None = None
) -> list[Launch]:
    """Two launches: stretches of ``block`` logits, then rows."""
    small = dict(temperature=temperature_N, seeds=seeds_N, ids=ids_N) | ({} if least_N is None else {"least": least_N})
    if logits_NV.dim() != 2 or any(x.shape != logits_NV.shape[:1] for x in small.values()):
        given = ", ".join(f"{name} {tuple(x.shape)}" for name, x in small.items())
        raise KernelError(f"logits {tuple(logits_NV.shape)} and {given} do not fit: want [N, V], and [N] each")
    N, V = logits_NV.shape
    check_whole(**small)
    check_rows(logits=logits_NV, **small)
    block = block or min(power_of_two(V), 4096)
    stretches = -(-V // block)
    values = logits_NV.new_empty((N, stretches), dtype=torch.float32)
    ids = ids_N.new_empty((N, stretches))
    args = dict(
        logits=logits_NV, temperature=temperature_N, seeds=seeds_N, least=temperature_N if least_N is None else least_N, values=values,
        ids=ids, logits_n=logits_NV.stride(0), V=V, stretches=stretches,
    )  # fmt: skip
    constants = {"BLOCK": block, "FLOOR": least_N is not None, "COLDEST": COLDEST}
    return [
        Launch(best_of_stretch, (N, stretches), args, constants, warps=4, stages=1),
        Launch(best_of_row, (N,), dict(values=values, ids=ids, out=ids_N, stretches=stretches), {"PARTS": power_of_two(stretches)}, 1, 1),
    ]
