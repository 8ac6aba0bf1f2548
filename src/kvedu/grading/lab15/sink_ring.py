"""Lab 15, exercise 2: a ring with sinks that attends at positions inside the cache, in fixed memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab15 import _rings as rings

H, K, D = rings.CONFIG.H, rings.CONFIG.K, rings.CONFIG.D


def cases(fresh: Fresh) -> list[Case]:
    """Streams that do not fill the ring, fill it, and go round it several times; with and without sinks."""
    sizes = [(2, 4, 5), (2, 4, 6), (1, 5, 17), (0, 4, 11), (4, 3, fresh.integer(15, 24)), (fresh.integer(1, 4), fresh.integer(3, 6), 30)]
    made = []
    for sinks, window, n in sizes:
        qkv = fresh.normal(n, H, D), fresh.normal(n, K, D), fresh.normal(n, K, D)
        made.append(Case(f"{n} tokens, {sinks} sinks, window {window}", (sinks, window, *qkv)))
    return made


def observe(answer: Any, sinks: int, window: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> dict[str, Any]:
    """Attention after each token, and the bytes held."""
    ring, outs, held = answer(sinks, window, K, D), [], []
    for q_HD, k_KD, v_KD in zip(q_NHD, k_NKD, v_NKD):
        ring.append(k_KD.clone(), v_KD.clone())
        out = ring.attend(q_HD.clone())
        if not isinstance(out, Tensor) or tuple(out.shape) != (H, D):
            raise Unfit(f"attend(q_HD) returns one row per query head, a tensor of shape {(H, D)}")
        outs.append(out)
        held.append(rings.bytes_in(vars(ring)))
    return {"out": torch.stack(outs), "held": held, "room": (sinks + window) * K * D * 2 * 4}


def constant(case: Case, seen: dict[str, Any]) -> str | None:
    """Memory may not grow with the text; some room beside the ring is no matter."""
    if seen["held"][-1] > 2 * seen["room"] and seen["held"][-1] > seen["held"][0]:
        return (
            f"{case.name}: attention is right, but memory grows: {seen['held'][-1]:,} bytes at the end, and "
            f"sinks + window take {seen['room']:,}. Write over what has left the window"
        )
    return None


EXERCISE = Exercise(
    title="A ring with sinks",
    read="book/15-sinks-rope-qk-ov",
    hint="Store keys as they come. When you attend: `places` says at which position each slot is rotated, and the query stands at the last of them.",
    checked="attention after every token of six streams, shorter than the ring and many rounds long, with and without sinks, and that memory does not grow",
    cases=cases,
    observe=observe,
    compared=lambda seen: seen["out"],
    right=rings.Truth,
    rules=(constant,),
    defines="SinkRing",
    mistakes=(
        Mistake(rings.KeysAtText, "keys are rotated at their positions in the text and the query at its place in the cache; both are places in the cache, so store keys plain and rotate when you attend"),
        Mistake(rings.TextPositions, "positions are those of the text; the sinks' distance then grows without end. Number what is held 0, 1, 2 …"),
        Mistake(rings.AsTheyLie, "keys are rotated at their slots; once the ring has gone round, slots are not in the order of the text"),
        Mistake(rings.NoSinks, "the first tokens are written over; the ring begins behind the sinks"),
        Mistake(rings.NotTurned, "nothing is rotated; keys are stored plain, so they and the query must be rotated when you attend"),
    ),
)  # fmt: skip
