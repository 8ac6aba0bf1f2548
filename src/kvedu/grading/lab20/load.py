"""Lab 20, exercise 3: a step copied to where a recording reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh

Rows = Sequence["tuple[int, int, list[int]]"]
NAMES = ("ids", "positions", "slots", "tables", "lengths")


def cases(fresh: Fresh) -> list[Case]:
    """Two steps after each other: more and then fewer rows, longer and then shorter tables, full and empty ones."""

    def rows(n: int, C: int, J: int) -> list[tuple[int, int, list[int]]]:
        found = []
        for _ in range(n):
            pages = fresh.shuffled(list(range(1, 40)))[: fresh.integer(1, J)]
            found.append((fresh.integer(5, 90), (len(pages) - 1) * C + fresh.integer(0, C - 1), pages))
        return found

    def case(label: str, B: int, J: int, C: int, first: int, then: int) -> Case:
        steps = [rows(first, C, J), rows(then, C, J)]
        if first and then:
            token, _, pages = steps[0][0]
            steps[0][0] = (token, J * C - 1, (pages + list(range(50, 60)))[:J])  # a full table, and then a short one
            steps[1][0] = (steps[1][0][0], fresh.integer(0, C - 1), steps[1][0][2][:1])
        return Case(label, (B, J, C, 63, steps))

    return [
        case("two full steps", 3, 4, 8, 3, 3),
        case("four rows, then two of four", 4, 3, 16, 4, 2),
        case("one of four, then three", 4, 2, 4, 1, 3),
        case("nobody after somebody", 2, 3, 8, 2, 0),
    ]


def observe(load: Callable[..., None], B: int, J: int, C: int, spare: int, steps: Sequence[Rows]) -> tuple[tuple[Tensor, ...], ...]:
    """What a recording finds after each step, in the tensors that it knows."""
    given = {name: torch.full((B, J) if name == "tables" else (B,), 7, dtype=torch.int64) for name in NAMES}
    kept = {name: x.view(x.shape) for name, x in given.items()}  # the addresses, whatever becomes of the tensors
    buffers, seen = dict(given), []
    for rows in steps:
        if (back := load(buffers, rows, C, spare)) is not None:
            raise Unfit(f"load changes the buffers and returns nothing; it returned a {type(back).__name__}")
        if set(buffers) != set(NAMES):
            raise Unfit(f"the buffers are {', '.join(NAMES)}; now there are {', '.join(sorted(buffers))}")
        for name, x in given.items():
            if x.data_ptr() != kept[name].data_ptr():
                moved = "is the same tensor, but its numbers lie at another address now, and a recording reads the old one"
                raise Unfit(f"{name} {moved}: write into what is there")
        seen.append(tuple(kept[name].clone() for name in NAMES))
    return tuple(seen)


def fill(buffers: dict[str, Tensor], rows: Rows, C: int, spare: int) -> None:
    """Every row is written anew; those that nobody needs stand on the spare page."""
    B, J = buffers["tables"].shape
    for b in range(B):
        token, t, pages = rows[b] if b < len(rows) else (0, 0, [spare])
        buffers["ids"][b], buffers["positions"][b] = token, t
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b] = torch.tensor([*pages, *[0] * (J - len(pages))])
        buffers["lengths"][b] = t + 1


def wrong(*, idle: str = "spare", slot: str = "right", tail: bool = True, lengths: int = 1, new: bool = False) -> Callable[..., None]:
    """``fill`` with one thing changed."""

    def load(buffers: dict[str, Tensor], rows: Rows, C: int, spare: int) -> None:
        if new:
            for name in NAMES:
                buffers[name] = buffers[name].clone()
        B, J = buffers["tables"].shape
        for b in range(B):
            if b >= len(rows) and idle == "left":
                continue
            token, t, pages = rows[b] if b < len(rows) else (0, 0, [spare if idle == "spare" else 0])
            buffers["ids"][b], buffers["positions"][b] = token, t
            buffers["slots"][b] = pages[0] * C + t if slot == "first" else pages[t // C] * C + t % C
            table = torch.tensor([*pages, *[0] * (J - len(pages))] if tail else pages)
            buffers["tables"][b, : len(table)] = table
            buffers["lengths"][b] = t + lengths

    return load


EXERCISE = Exercise(
    title="Tensors that stay",
    read="book/20-graphs-and-launch-overhead",
    hint="Write into the tensors with buffers[name][b] = …, or .copy_(…). Give each of the B rows something, idle ones too: token 0 at position 0 of the spare page.",
    checked="two steps after each other, with fewer, as many or more rows, shorter tables, and nobody at all; tensors and addresses must be those that were given",
    cases=cases,
    observe=observe,
    right=fill,
    parts=NAMES,
    mistakes=(
        Mistake(wrong(new=True), "new tensors are put into the dictionary; a recording reads the old ones, which still hold what they held"),
        Mistake(wrong(idle="left"), "rows that nobody needs keep what an earlier step left there, and will write into pages that may be somebody else's by now"),
        Mistake(wrong(idle="zero"), "idle rows stand on page 0, which somebody may own; they belong on the spare page"),
        Mistake(wrong(slot="first"), "a slot is counted from the first page on; token t lies in page number t // C of its table, at place t % C"),
        Mistake(wrong(tail=False), "behind a shorter table stand the pages of the one before; unused entries are 0"),
        Mistake(wrong(lengths=0), "lengths count the new token too: the token at position t is number t + 1"),
    ),
)
