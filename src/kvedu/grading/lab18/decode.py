"""Lab 18, exercise 3: decode attention over pages, a group of query heads in one program."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel
from kvedu.grading.lab18._paged import attend, paged, tokens


def per_sequence(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, how: Any) -> None:
    """``how(q_HD, k_SKD, v_SKD)`` for each sequence."""
    for b, length in enumerate(lengths.tolist()):
        out[b] = how(q[b], *(tokens(x, tables[b], length) for x in (k, v)))


def right(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, **rest: Any) -> None:
    """What the lab's ``decode_spec`` says."""
    per_sequence(q, k, v, out, tables, lengths, lambda *qkv: attend(*qkv, scale)[0])


def tiled_heads(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, **rest: Any) -> None:
    """C001: query head h reads KV head h % K."""
    per_sequence(q, k, v, out, tables, lengths, lambda *qkv: attend(*qkv, scale, lambda h, K: h % K)[0])


def no_scale(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, **rest: Any) -> None:
    """Scores as they come from the product."""
    per_sequence(q, k, v, out, tables, lengths, lambda *qkv: attend(*qkv, 1.0)[0])


def zeros_count(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
    """Masked places have score 0 instead of -inf, and so a weight."""

    def how(q_HD: Tensor, *both: Tensor) -> Tensor:
        padded = (torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -len(x) % C)) for x in both)
        return attend(q_HD, *padded, scale)[0]

    per_sequence(q, k, v, out, tables, lengths, how)


def full_pages(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
    """The loop runs over ``length // C`` pages."""

    def how(q_HD: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> Tensor:
        n = len(k_SKD) // C * C
        return attend(q_HD, k_SKD[:n], v_SKD[:n], scale)[0] if n else torch.full_like(q_HD, torch.nan)

    per_sequence(q, k, v, out, tables, lengths, how)


def never_shrinks(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, C: int, **rest: Any) -> None:
    """The sum shrinks when the maximum grows, the result does not."""

    def how(q_HD: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> Tensor:
        H, G = len(q_HD), len(q_HD) // k_SKD.shape[1]
        k_HSD, v_HSD = (x.repeat_interleave(G, 1).transpose(0, 1) for x in (k_SKD, v_SKD))
        m, l, acc = torch.full((H,), -torch.inf), torch.zeros(H), torch.zeros_like(q_HD)
        for start in range(0, k_HSD.shape[1], C):
            s_HC = (k_HSD[:, start : start + C] @ q_HD[:, :, None])[..., 0] * scale
            m_new = torch.maximum(m, s_HC.amax(1))
            p_HC = (s_HC - m_new[:, None]).exp()
            l = l * (m - m_new).exp() + p_HC.sum(1)  # noqa: E741
            acc, m = acc + (p_HC[:, None] @ v_HSD[:, start : start + C])[:, 0], m_new
        return acc / l[:, None]

    per_sequence(q, k, v, out, tables, lengths, how)


def no_maximum(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, **rest: Any) -> None:
    """exp of the scores as they are: too large for fp32 where they pass 88."""

    def how(q_HD: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> Tensor:
        G = len(q_HD) // k_SKD.shape[1]
        k_HSD, v_HSD = (x.repeat_interleave(G, 1).transpose(0, 1) for x in (k_SKD, v_SKD))
        p_HS = ((k_HSD @ q_HD[:, :, None])[..., 0] * scale).exp()
        return (p_HS[:, None] @ v_HSD)[:, 0] / p_HS.sum(1, keepdim=True)

    per_sequence(q, k, v, out, tables, lengths, how)


def past_the_end(out: Tensor, lengths: Tensor, C: int, **rest: Any) -> None:
    """A place that no token was written to has a weight, and it holds NaN."""
    right(out=out, lengths=lengths, **rest)
    out[lengths % C != 0] = torch.nan


def no_division(q: Tensor, k: Tensor, v: Tensor, out: Tensor, tables: Tensor, lengths: Tensor, scale: float, **rest: Any) -> None:
    """Weights that are not divided by their sum."""

    def how(q_HD: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> Tensor:
        G = len(q_HD) // k_SKD.shape[1]
        k_HSD, v_HSD = (x.repeat_interleave(G, 1).transpose(0, 1) for x in (k_SKD, v_SKD))
        s_HS = (k_HSD @ q_HD[:, :, None])[..., 0] * scale
        return ((s_HS - s_HS.amax(1, keepdim=True)).exp()[:, None] @ v_HSD)[:, 0]

    per_sequence(q, k, v, out, tables, lengths, how)


def cases(fresh: Fresh) -> list[Case]:
    """Groups of 1, 3 and 4; lengths inside, at and past a page; scores beyond what exp can take."""
    made = []
    for K, G, D, lengths, size in ((2, 3, 16, [40, 16, 1], 1.0), (2, 4, 32, [fresh.integer(17, 31)], 1.0), (3, 1, 16, [33, 20], 1.0), (1, 3, 16, [35], 60.0)):
        scene = paged(fresh, lengths, K, D, 16)
        q_BHD = hollow(size * fresh.normal(len(lengths), K * G, D))
        name = f"{K * G} query heads on {K} KV heads, lengths {', '.join(map(str, lengths))}" + (", large scores" if size > 1 else "")
        made.append(Case(name, (q_BHD, scene["k"], scene["v"], scene["tables"], scene["lengths"])))
    return made


def arguments(q: Tensor, k: Tensor, v: Tensor, tables: Tensor, lengths: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    """A decode kernel's tensors, strides and constants, without its results."""
    H, D, K = q.shape[1], q.shape[2], k.shape[2]
    args = dict(
        q=q, k=k, v=v, tables=tables, lengths=lengths, q_b=q.stride(0), q_h=q.stride(1), k_p=k.stride(0), k_c=k.stride(1), k_k=k.stride(2),
        table_b=tables.stride(0), scale=1 / math.sqrt(D),
    )  # fmt: skip
    return args, dict(G=H // K, GP=16, D=D, C=k.shape[1])


def observe(kernel: Any, q: Tensor, k: Tensor, v: Tensor, tables: Tensor, lengths: Tensor) -> dict[str, Any]:
    """One program for each KV head and sequence."""
    args, constants = arguments(q, k, v, tables, lengths)
    out = empty(*q.shape)
    return run_kernel(kernel, (k.shape[2], len(q)), args | dict(out=out, out_b=out.stride(0), out_h=out.stride(1)), ("out",), constants)


def reads_once(case: Case, seen: Any) -> str | None:
    """Keys and values once for each KV head."""
    q, k, _, _, lengths = case.args
    most = (2 * int(lengths.sum()) * k.shape[2] * k.shape[3] + q.numel()) * 4
    if seen["asked"] is None or seen["asked"] <= most:
        return None
    return f"the result is right, but {seen['asked']:,} bytes are asked for and {most:,} are enough: load each key and each value once for the whole group"


EXERCISE = Exercise(
    title="Decode over pages",
    read="book/18-paged-decode-kernel",
    hint="Write it for one page first: load q [GP, D] with a mask on the rows, k [C, D] with a mask on the tokens, `tl.dot`, −inf where no token is. Then put the loop around it.",
    checked="four steps: groups of 1, 3 and 4, one to three sequences, lengths inside, at and past a page, scores beyond what exp can take; NaN wherever no token is",
    cases=cases,
    observe=observe,
    compared=left,
    right=Twin(right),
    mistakes=(
        Mistake(Twin(tiled_heads), "query head h reads KV head h % K; neighbors share a KV head, so it is h // G: the program's rows are query heads head · G to head · G + G − 1"),
        Mistake(Twin(no_scale), "the scores are not multiplied by `scale`"),
        Mistake(Twin(zeros_count), "places past a sequence's end have score 0 and so a weight; their score must be −inf"),
        Mistake(Twin(full_pages), "the last page is left out where it is not full: there are `tl.cdiv(length, C)` pages"),
        Mistake(Twin(never_shrinks), "when the maximum grows, what was added up so far must shrink with it: the sum does here, the result does not"),
        Mistake(Twin(no_maximum), "large scores overflow: take the running maximum away before `tl.exp`"),
        Mistake(Twin(past_the_end), "a place past a sequence's end is loaded and has a weight; whatever lies there, here NaN, is in the result"),
        Mistake(Twin(no_division), "the weights do not sum to 1: divide by their sum at the end"),
    ),
    rules=(reads_once,),
    seconds=20,
)  # fmt: skip
