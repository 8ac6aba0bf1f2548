"""Lab 19, exercise 4: decode attention over pages of codes, decoded nowhere but in registers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel
from kvedu.grading.lab18._paged import attend, tokens

How = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float], Tensor]
"""Query, codes and scales of keys, codes and scales of values, all of one sequence, and 1/√D: the attention."""


def twin(how: How, pages: Callable[[Tensor, int], int] = lambda length, C: int(length)) -> Twin:
    """A kernel's stand-in: ``how`` for each sequence over the tokens that it sees."""

    def fill(q: Tensor, kc: Tensor, ks: Tensor, vc: Tensor, vs: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
        for b, length in enumerate(lengths):
            sides = (tokens(x, tables[b], pages(length, C)) for x in (kc, ks[..., None], vc, vs[..., None]))
            out[b] = how(q[b], *(x.float() for x in sides), scale)

    return Twin(fill)


def exact(q: Tensor, kc: Tensor, ks: Tensor, vc: Tensor, vs: Tensor, scale: float) -> Tensor:
    """Over the numbers that the codes stand for."""
    return attend(q, kc * ks, vc * vs, scale)[0]


def no_key_scale(q: Tensor, kc: Tensor, ks: Tensor, vc: Tensor, vs: Tensor, scale: float) -> Tensor:
    return attend(q, kc, vc * vs, scale)[0]


def no_value_scale(q: Tensor, kc: Tensor, ks: Tensor, vc: Tensor, vs: Tensor, scale: float) -> Tensor:
    return attend(q, kc * ks, vc, scale)[0]


def first_head(q: Tensor, kc: Tensor, ks: Tensor, vc: Tensor, vs: Tensor, scale: float) -> Tensor:
    return attend(q, kc * ks[:, :1], vc * vs[:, :1], scale)[0]


def keys_scale(q: Tensor, kc: Tensor, ks: Tensor, vc: Tensor, vs: Tensor, scale: float) -> Tensor:
    return attend(q, kc * ks, vc * ks, scale)[0]


def in_the_sum(q: Tensor, kc: Tensor, ks: Tensor, vc: Tensor, vs: Tensor, scale: float) -> Tensor:
    """The values' scales are taken into the weights before these are added up."""
    H, G = len(q), len(q) // kc.shape[1]
    outs = []
    for h in range(H):
        p_S = torch.softmax((kc * ks)[:, h // G] @ q[h] * scale, 0) * vs[:, h // G, 0]
        outs.append((p_S @ vc[:, h // G]) / p_S.sum())
    return torch.stack(outs)


def cases(fresh: Fresh) -> list[Case]:
    """Groups of 1, 3 and 4, one to three sequences, scales that differ from head to head and token to token; rubbish wherever no token is."""
    made, C = [], 16
    for K, G, D, lengths in ((2, 3, 16, [40, 16, 1]), (3, 1, 32, [fresh.integer(17, 31)]), (1, 4, 16, [33, 20])):
        needed = [-(-length // C) for length in lengths]
        order = fresh.shuffled(range(sum(needed) + 2))
        tables = torch.zeros(len(lengths), max(needed), dtype=torch.int32)
        codes = [torch.full((len(order), C, K, D), 127, dtype=torch.int8) for _ in "kv"]
        scales = [torch.full((len(order), C, K), torch.nan) for _ in "kv"]
        for b, (length, n) in enumerate(zip(lengths, needed)):
            pages = [order.pop() for _ in range(n)]
            tables[b, :n] = torch.tensor(pages, dtype=torch.int32)
            place = torch.arange(length)
            page = torch.tensor(pages)[place // C]
            for code, scale in zip(codes, scales):
                code[page, place % C] = (torch.tensor(fresh.tokens(length * K * D, 255)) - 127).to(torch.int8).view(length, K, D)
                scale[page, place % C] = 0.005 * (1 + fresh.normal(length, K).abs())
        q_BHD = hollow(2 * fresh.normal(len(lengths), K * G, D))
        args = (q_BHD, *(hollow(x) for pair in zip(codes, scales) for x in pair), hollow(tables), torch.tensor(lengths, dtype=torch.int32))
        made.append(Case(f"{K * G} query heads on {K} KV heads, lengths {', '.join(map(str, lengths))}", args))
    return made


def observe(kernel: Any, q: Tensor, kc: Tensor, ks: Tensor, vc: Tensor, vs: Tensor, tables: Tensor, lengths: Tensor) -> dict[str, Any]:
    """One program for each KV head and sequence."""
    (B, H, D), (_, C, K, _) = q.shape, kc.shape
    out = empty(B, H, D)
    args = dict(
        q=q, kc=kc, ks=ks, vc=vc, vs=vs, out=out, tables=tables, lengths=lengths, q_b=q.stride(0), q_h=q.stride(1),
        c_p=kc.stride(0), c_c=kc.stride(1), c_k=kc.stride(2), s_p=ks.stride(0), s_c=ks.stride(1), s_k=ks.stride(2), table_b=tables.stride(0),
        out_b=out.stride(0), out_h=out.stride(1), scale=1 / math.sqrt(D),
    )  # fmt: skip
    return run_kernel(kernel, (K, B), args, ("out",), dict(G=H // K, GP=16, D=D, C=C))


def reads_once(case: Case, seen: Any) -> str | None:
    """Codes once, one scale for each token and head."""
    q, kc, lengths = case.args[0], case.args[1], case.args[-1]
    most = 2 * int(lengths.sum()) * kc.shape[2] * (kc.shape[3] + 4) + 4 * q.numel()
    if seen["asked"] is None or seen["asked"] <= most:
        return None
    once = "load each code once, and none past a sequence's end; and one scale for each token, not one for each number"
    return f"the result is right, but {seen['asked']:,} bytes are asked for and {most:,} are enough: {once}"


EXERCISE = Exercise(
    title="Decode over codes",
    read="book/19-quantized-pages",
    hint="It is lab 18's `decode` with three changes: codes are loaded and made fp32, scores are multiplied by the keys' scales, weights by the values' scales before the second product.",
    checked="three steps: groups of 1, 3 and 4, one to three sequences, a scale of its own for each token and head; rubbish wherever no token is",
    cases=cases,
    observe=observe,
    compared=left,
    right=twin(exact),
    mistakes=(
        Mistake(twin(no_key_scale), "the scores are not multiplied by the keys' scales"),
        Mistake(twin(no_value_scale), "the values' scales are missing: multiply the weights by them before the product with the codes"),
        Mistake(twin(first_head), "every head uses the first head's scales: a scale lies at page · s_p + c · s_c + head · s_k"),
        Mistake(twin(keys_scale), "the values are multiplied by the keys' scales"),
        Mistake(twin(in_the_sum), "the sum of the weights is taken after they were multiplied by the values' scales; those belong to the result, not to the softmax"),
        Mistake(twin(exact, lambda length, C: -(-int(length) // C) * C), "places past a sequence's end are read: their scale is whatever was there"),
    ),
    rules=(reads_once,),
    seconds=20,
)  # fmt: skip
