"""Lab 20, exercise 4: keys turned on their way into the pages, idle rows nowhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, hollow, left, run_kernel

SHAPES = (
    ("one row", 1, 1, 16, 4, ()),
    ("four rows, the last one idle", 4, 3, 16, 4, (3,)),
    ("five rows, two idle between", 5, 2, 32, 8, (0, 2)),
    ("two rows, both idle", 2, 2, 16, 4, (0, 1)),
)
"""Name, rows, KV heads, head size, tokens of a page, idle rows."""
PAGES = 4


def cases(fresh: Fresh) -> list[Case]:
    """Rows in shuffled slots, the first and the last one among them; idle rows between and behind the others; nobody at all."""
    made = []
    for label, B, K, D, C, idle in SHAPES:
        slots = fresh.shuffled(([0, PAGES * C - 1] + fresh.shuffled(range(1, PAGES * C - 1)))[:B])
        slots = [-1 if b in idle else slot for b, slot in enumerate(slots)]
        angle_BE = 6 * fresh.normal(B, D // 2)
        pages = [fresh.normal(PAGES, C, K, D) for _ in "kv"]  # tokens of others: what is not written stays
        rows = fresh.normal(B, K, D), fresh.normal(B, K, D), angle_BE.cos(), angle_BE.sin()
        args = *map(hollow, rows), torch.tensor(slots), *map(hollow, pages)
        made.append(Case(f"{label}: slots {', '.join(map(str, slots))} of pages of {C}", args))
    return made


def observe(kernel: Any, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, k_pages: Tensor, v_pages: Tensor) -> dict[str, Any]:
    """A program for each row and KV head."""
    (B, K, D), C = k.shape, k_pages.shape[1]
    pages = [hollow(x) for x in (k_pages, v_pages)]
    args = dict(
        k=k, v=v, cos=cos, sin=sin, slots=slots, k_pages=pages[0], v_pages=pages[1], x_b=k.stride(0), x_k=k.stride(1), t_b=cos.stride(0),
    )  # fmt: skip
    args |= zip(("p_p", "p_c", "p_k"), pages[0].stride())
    return run_kernel(kernel, (B, K), args, ("k_pages", "v_pages"), dict(C=C, E=D // 2))


def twin(
    *, idle_to_first: bool = False, pairs: str = "halves", sign: int = 1, late: bool = False,
    turn: bool = True, values_too: bool = False, own: bool = True,
) -> Twin:  # fmt: skip
    """The spec, with one thing changed."""

    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        out, E = x.clone(), x.shape[-1] // 2
        a, b = (slice(None, E), slice(E, None)) if pairs == "halves" else (slice(0, None, 2), slice(1, None, 2))
        out[:, a] = x[:, a] * cos - sign * x[:, b] * sin
        out[:, b] = x[:, b] * cos + sign * (out if late else x)[:, a] * sin
        return out

    def fill(k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, k_pages: Tensor, v_pages: Tensor, C: int, **rest: Any) -> None:
        for b, slot in enumerate(slots.tolist()):
            if slot < 0 and not idle_to_first:
                continue
            page, place = divmod(max(slot, 0), C)
            angle = (cos[b], sin[b]) if own else (cos[0], sin[0])
            k_pages[page, place] = turned(k[b], *angle) if turn else k[b]
            v_pages[page, place] = turned(v[b], *angle) if values_too else v[b]

    return Twin(fill)


def once(case: Case, seen: dict[str, Any]) -> str | None:
    """Of a row that has a slot every number once, of an idle row none."""
    if seen["asked"] is None:
        return None
    k, slots = case.args[0], case.args[4]
    least = 4 * int((slots >= 0).sum()) * k.shape[1] * 3 * k.shape[2]  # a key, a value, cosines and sines: D numbers each
    if seen["asked"] <= least:
        return None
    what = "load each half of a key once, and of an idle row nothing but its slot"
    return f"the result is right, but {seen['asked']:,} bytes are asked for and {least:,} are enough: {what}"


EXERCISE = Exercise(
    title="Turned on the way",
    read="book/20-graphs-and-launch-overhead",
    hint="One mask does it, slot >= 0, for loads and stores both. Load the halves of the key as two tiles of E, and make both results before you store one.",
    checked="one to five rows in shuffled slots of pages of 4 and 8, idle rows between and behind them, nobody at all; other tokens' places untouched; no number read twice, none of an idle row",
    cases=cases,
    observe=observe,
    compared=left,
    parts=("pages of keys", "pages of values"),
    right=twin(),
    rules=(once,),
    seconds=20,
    mistakes=(
        Mistake(
            twin(idle_to_first=True), "an idle row, slot -1, is written to slot 0, where somebody's first token lies",
            hint="Pushed up to 0, a slot of -1 is inside the pool, and somebody's. Mask loads and stores with slot >= 0.",
        ),
        Mistake(twin(pairs="neighbors"), "neighbors 2j and 2j + 1 are turned together; in this layout it is j and j + D/2"),
        Mistake(twin(sign=-1), "the keys are turned backwards: the sine's part is taken away in the first half and added in the second"),
        Mistake(twin(late=True), "the second half is made of the first half's *new* numbers: keep the old ones until both are done"),
        Mistake(twin(values_too=True), "the values are turned, too; only queries and keys know positions"),
        Mistake(twin(turn=False), "the keys are written as they came, not turned"),
        Mistake(twin(own=False), "every row is turned by the first row's angles: row b's lie at cos + b · t_b and sin + b · t_b"),
    ),
)  # fmt: skip
