"""The tiled kernel: causal attention of T queries over S keys, a tile of keys at a time."""

import math
from typing import Callable

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel

SHAPES = ((5, 5, 2, 1), (33, 33, 4, 2), (20, 45, 3, 1), (1, 40, 2, 2))
BLOCK_T = BLOCK_S = 16
D = 16


def cases(fresh):
    made = []
    for T, S, H, K in SHAPES:
        q, k, v = 2 * fresh.normal(T, H, D), 2 * fresh.normal(S, K, D), fresh.normal(S, K, D)
        k *= torch.linspace(0.5, 2.0, S)[:, None, None]  # scores grow along the row
        made.append(Case(f"T={T}, S={S}, H={H}, K={K}", tuple(map(hollow, (q, k, v)))))
    return made


def observe(kernel, q_THD: Tensor, k_SKD: Tensor, v_SKD: Tensor):
    (T, H, D), (S, K, _), out = q_THD.shape, k_SKD.shape, empty(*q_THD.shape)
    args = dict(q=q_THD, k=k_SKD, v=v_SKD, out=out, T=T, S=S, scale=1 / math.sqrt(D))
    for name, x in (("q", q_THD), ("k", k_SKD), ("v", v_SKD), ("out", out)):
        args |= {f"{name}_{'s' if name in 'kv' else 't'}": x.stride(0), f"{name}_h": x.stride(1)}
    grid = (-(-T // BLOCK_T), H)
    return run_kernel(kernel, grid, args, ("out",), dict(G=H // K, D=D, BLOCK_T=BLOCK_T, BLOCK_S=BLOCK_S))


def walked(
    *, acc: bool = True, sum_: bool = True, corner: bool = False, mask: bool = True, scales: int = 1, head: Callable[[int, int, int], int] = lambda h, G, K: h // G
) -> Twin:
    """The walk, with what can go wrong in it."""

    def fill(q, k, v, out, T, S, scale, G, BLOCK_T, BLOCK_S, **_):
        K = k.shape[1]
        for h in range(q.shape[1]):
            keys, values = k[:, head(h, G, K)], v[:, head(h, G, K)]
            for t0 in range(0, T, BLOCK_T):
                at = torch.arange(t0, min(t0 + BLOCK_T, T))
                end = min(S, S - T + t0 + BLOCK_T)
                m, l, o = torch.full((len(at),), -math.inf), torch.zeros(len(at)), torch.zeros(len(at), q.shape[2])
                for s0 in range(0, end, BLOCK_S):
                    tile = torch.arange(s0, min(s0 + BLOCK_S, end))
                    s = q[at, h] @ keys[tile].T * scale**scales
                    if mask:
                        s = s.masked_fill(tile > (at if corner else S - T + at)[:, None], -math.inf)
                    new = torch.maximum(m, s.amax(-1))
                    p, shrink = (s - new[:, None]).exp(), (m - new).exp()
                    l = l * (shrink if sum_ else 1) + p.sum(-1)
                    o = o * (shrink[:, None] if acc else 1) + p @ values[tile]
                    m = new
                out[at, h] = o / l[:, None]

    return Twin(fill)


def no_more_tiles(case: Case, seen) -> "str | None":
    """Keys and values up to a block's last token, once each; queries once."""
    if seen["asked"] is None:
        return None
    (T, H, _), S = case.args[0].shape, len(case.args[1])
    ends = [min(S, S - T + t0 + BLOCK_T) for t0 in range(0, T, BLOCK_T)]
    whole = [min(S, -(-end // BLOCK_S) * BLOCK_S) for end in ends]
    floor, tiles = (4 * D * H * (2 * sum(keys) + T) for keys in (ends, whole))
    if seen["asked"] <= floor:
        return None
    if seen["asked"] <= tiles:
        return f"{seen['asked']:,} bytes are read where {floor:,} would do: keys of the last tile behind the block's last token are loaded; mask them with `end`"
    return f"{seen['asked']:,} bytes are read where {floor:,} would do: the loop goes on behind the block's last token, over tiles that no row may see"


EXERCISE = Exercise(
    title="The tiled kernel",
    read="book/17-flashattention",
    hint="Five steps in the loop: load the keys, scores, hide, shrink and add, load the values. Row t is the query at position S - T + t.",
    checked="T from 1 to 33 queries over S from 5 to 45 keys, the last T of which are their own; groups of 1, 2 and 3 query heads; gaps between all rows; scores that grow along the row; no tile above the diagonal loaded",
    cases=cases,
    observe=observe,
    compared=left,
    right=walked(),
    mistakes=(
        Mistake(walked(acc=False), "the accumulator is not rescaled when the maximum grows; the sum is"),
        Mistake(walked(sum_=False), "the sum is not rescaled when the maximum grows; the accumulator is"),
        Mistake(walked(acc=False, sum_=False), "neither sum nor accumulator are rescaled when the maximum grows"),
        Mistake(walked(corner=True), "the queries are taken for the first T positions; they are the last T of S", hint="The query in row t stands at position S - T + t."),
        Mistake(walked(mask=False), "a row sees the keys of the whole tile, also those after its own position"),
        Mistake(walked(scales=0), "the scores are not scaled"),
        Mistake(walked(scales=2), "the scores are scaled twice"),
        Mistake(walked(head=lambda h, G, K: h % K), "query head h reads KV head h % K; neighbors share a KV head, so it is h // G"),
    ),
    rules=(no_more_tiles,),
    tolerance=1e-3,
    seconds=30,
)  # fmt: skip
